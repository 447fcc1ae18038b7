"""A whole service whose bundles lie in an object store: found, fetched, swapped in, refused; and the store away."""

import re

import httpx
import pytest

from portcullis.bundle.files import MANIFEST_FILE, MODEL_FILE, SIGNATURE_FILE
from portcullis.bundle.signatures import make_key, sign
from tests import tiny
from tests.hammer import eventually
from tests.object_store import object_store
from tests.running import ADMIN_KEY, RunningService
from tests.service.pictures import RED

pytestmark = pytest.mark.slow

FILES = (MODEL_FILE, "report.md", MANIFEST_FILE)
WATCHING = ("--watch-models-seconds", "0.2", "--models-timeout-seconds", "60")


@pytest.fixture(scope="module")
def one_store():
    with object_store() as store:
        yield store


@pytest.fixture
def store(one_store):
    yield one_store
    one_store.come_back()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shelf")
    for version in (1, 2, 3, 4):
        tiny.write(directory, version=version, sharpness=1 + version / 100)
    return directory


class Desk:
    """A running service as its admin sees it."""

    def __init__(self, *flags, **options):
        self.service = RunningService(*flags, **options)
        self.client = httpx.Client(base_url=self.service.url, headers={"x-api-key": ADMIN_KEY}, timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *reasons):
        self.client.close()
        self.service.__exit__(*reasons)

    def answered_by(self):
        answer = self.client.post("/v1/predict", content=RED)
        assert answer.status_code == 200, answer.text
        return answer.json()["version"]

    def until_answered_by(self, version):
        """Every answer on the way there is one, by one version or another."""
        eventually(lambda: self.answered_by() == version)

    def refused(self):
        [model] = [model for model in self.client.get("/v1/models").json()["models"] if model["name"] == "tiny"]
        return {entry["version"]: entry["reason"] for entry in model["refused"]}

    def metric(self, name):
        found = re.search(rf"^portcullis_{name} (\S+)$", self.client.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else None


def put(store, shelf, bucket, version, files=FILES):
    store.put(shelf / "tiny" / str(version), bucket, files)


def test_a_service_follows_its_store_and_goes_on_without_it(store, shelf, tmp_path):
    url = store.bucket("followed")
    put(store, shelf, "followed", 1)
    with Desk(url, tmp_path, *WATCHING, environment=store.environment) as desk:
        assert (desk.answered_by(), desk.metric("source_reached")) == (1, 1)

        put(store, shelf, "followed", 2)
        desk.until_answered_by(2)

        store.write("followed", f"tiny/3/{MODEL_FILE}", b"cut short")
        put(store, shelf, "followed", 3, files=FILES[1:])
        assert "digest" in eventually(lambda: desk.refused().get(3))
        assert desk.answered_by() == 2
        put(store, shelf, "followed", 3)
        desk.until_answered_by(3)
        assert desk.client.post("/v1/models/tiny/versions/1").status_code == 200
        assert desk.metric("source_fetches_total") >= 2

        store.go_away()
        eventually(lambda: desk.metric("source_reached") == 0)
        assert desk.metric("source_failures_total") >= 1
        assert desk.answered_by() == 3
        assert desk.client.put("/v1/models/tiny/default", json={"version": 2}).status_code == 200  # from the cache
        assert desk.answered_by() == 2
        away = desk.client.post("/v1/models/rescan")
        assert (away.status_code, away.json()["error"]["code"]) == (503, "source_away")
        unknown = desk.client.post("/v1/models/tiny/versions/4")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_version")
        assert desk.client.put("/v1/models/tiny/default", json={"version": None}).status_code == 200
        assert desk.answered_by() == 3
        refused = desk.client.post("/v1/models/tiny/calibrate", files=[("files", ("red.png", RED))])
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")

    with Desk(url, tmp_path, *WATCHING, environment=store.environment) as desk:
        assert (desk.answered_by(), desk.metric("source_reached")) == (3, 0)
        assert any("what was fetched before counts: tiny/1, tiny/2, tiny/3" in line for line in desk.service.lines)
        store.come_back()
        put(store, shelf, "followed", 4)
        desk.until_answered_by(4)
        eventually(lambda: desk.metric("source_reached") == 1)


def test_a_start_with_neither_store_nor_cache_says_so(store, tmp_path):
    url = store.bucket("nothing")
    with pytest.raises(RuntimeError, match=f"no bundle lies in {url}"):
        RunningService(url, tmp_path, environment=store.environment)


def test_where_a_key_is_trusted_nothing_unsigned_is_loaded_in_any_way(store, shelf, tmp_path):
    public = make_key(tmp_path / "key.pem")
    url = store.bucket("signed")
    put(store, shelf, "signed", 1)
    flags = (*WATCHING, "--trusted-keys", public)
    for models in (shelf, url):
        with pytest.raises(RuntimeError, match="not signed, and a trusted key is set"):
            RunningService(models, tmp_path / "runtime", *flags, environment=store.environment)
    sign(shelf / "tiny" / "1", tmp_path / "key.pem")
    put(store, shelf, "signed", 1, files=(SIGNATURE_FILE,))
    with Desk(url, tmp_path / "runtime", *flags, environment=store.environment) as desk:
        assert desk.answered_by() == 1
        put(store, shelf, "signed", 2)
        assert "not signed" in eventually(lambda: desk.refused().get(2))
        shadow = {"version": 2, "share": 0.5}
        for refusal in (
            desk.client.post("/v1/models/tiny/versions/2"),
            desk.client.put("/v1/models/tiny/default", json={"version": 2}),
            desk.client.put("/v1/models/tiny/shadow", json=shadow),
        ):
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (422, "bad_bundle"), refusal.text
            assert "not signed" in refusal.json()["error"]["message"]
        assert desk.answered_by() == 1
        sign(shelf / "tiny" / "2", tmp_path / "key.pem")
        put(store, shelf, "signed", 2, files=(SIGNATURE_FILE,))
        desk.until_answered_by(2)
