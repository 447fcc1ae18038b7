"""Nothing that a worker does while it serves touches the disk on its event loop: others would wait for it."""

import shutil

import httpx
import pytest

from tests import tiny
from tests.hammer import eventually
from tests.running import ADMIN_KEY, RunningService
from tests.service.pictures import RED

pytestmark = pytest.mark.slow
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
# Python tells an audit hook of every file that is opened, renamed or removed and every directory that is read, on the
# very thread that does it; of a sync and of a statement to a database it tells nobody, so these are wrapped. A thread
# that runs an event loop has no business with any of them.
WATCH = """
import asyncio, functools, os, sqlite3, sys

EVENTS = {"open", "os.listdir", "os.scandir", "os.rename", "os.remove", "os.mkdir", "os.truncate"}
PLACES = tuple(os.environ["WATCHED_PLACES"].split(":"))

def watch(event, arguments):
    is_trim = event == "ctypes.dlsym" and arguments[1] == "malloc_trim"
    if is_trim or (event in EVENTS and str(arguments[0]).startswith(PLACES)):
        tell(event, arguments[:2])

def tell(event, arguments):
    if asyncio._get_running_loop() is None:
        return
    frame, callers = sys._getframe(1), []
    while frame is not None:
        callers.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}")
        frame = frame.f_back
    os.write(descriptor, f"{event} {arguments} {' < '.join(callers[:12])}\\n".encode())

class WatchedConnection(sqlite3.Connection):
    def execute(self, *arguments):
        tell("sqlite3.execute", arguments[:1])
        return super().execute(*arguments)

def fsync(number, sync=os.fsync):
    tell("os.fsync", (number,))
    sync(number)

descriptor = os.open(os.environ["WATCHED_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
sqlite3.connect, os.fsync = functools.partial(sqlite3.connect, factory=WatchedConnection), fsync
sys.addaudithook(watch)

async def try_it():
    connection = sqlite3.connect(":memory:")
    connection.execute("SELECT 1")
    connection.close()
    os.fsync(os.open(os.environ["WATCHED_LOG"], os.O_RDONLY))

asyncio.run(try_it())
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A service whose workers tell of every file that they touch on their event loop, and where they tell it."""
    models, runtime, site = (tmp_path_factory.mktemp(name) for name in ("models", "runtime", "site"))
    (site / "sitecustomize.py").write_text(WATCH)
    tiny.write(models, version=1)
    tiny.write(models, version=2, sharpness=1.5)
    log = site / "touched"
    environment = {"PYTHONPATH": str(site), "WATCHED_LOG": str(log), "WATCHED_PLACES": f"{models}:{runtime}"}
    flags = ["--serve", "tiny@1", "--watch-models-seconds", "0.1", "--review-enabled"]
    with RunningService(models, runtime, *flags, environment=environment) as service:
        found = {line.split()[0] for line in log.read_text().splitlines()}
        assert {"open", "sqlite3.execute", "os.fsync"} <= found, "starting up may, and shows that the watch works"
        log.write_text("")
        yield service, models, log


@pytest.fixture
def client(watched):
    service, _, log = watched
    with httpx.Client(base_url=service.url, headers=ADMIN, timeout=60) as client:
        yield client
    touched = set(log.read_text().splitlines())
    log.write_text("")
    assert touched == set()


def test_reading(client):
    for _ in range(6):
        client.post("/v1/predict", content=RED).raise_for_status()
        for path in ("", "/tiny", "/tiny/gate", "/tiny/drift", "/tiny/reference", "/tiny/report", "/tiny/examples"):
            client.get(f"/v1/models{path}").raise_for_status()
        for path in ("/metrics", "/healthz", "/readyz", "/v1/review", "/openapi.json", "/docs", "/", "/v2/models/tiny"):
            client.get(path).raise_for_status()
        client.post("/v2/repository/index").raise_for_status()


def test_changing_a_gate_and_versions_with_a_candidate_in_the_shadow(client):
    client.put("/v1/models/tiny/gate", json={"operating_point": "accept90"}).raise_for_status()
    client.post("/v1/models/tiny/versions/2").raise_for_status()
    client.delete("/v1/models/tiny/versions/2").raise_for_status()
    client.put("/v1/models/tiny/shadow", json={"version": 2, "share": 1}).raise_for_status()

    def compared():
        client.post("/v1/predict", content=RED).raise_for_status()
        return client.get("/v1/models/tiny").json()["shadow"]["num_images"]

    eventually(compared)
    client.post("/v1/models/tiny/shadow/promote").raise_for_status()
    client.put("/v1/models/tiny/default", json={"version": 1}).raise_for_status()
    client.post("/v2/repository/models/tiny/unload").raise_for_status()
    client.post("/v2/repository/models/tiny/load").raise_for_status()


def test_looking_for_newer_versions_and_refusing_one(watched, client, tmp_path):
    _, models, _ = watched
    client.put("/v1/models/tiny/default", json={}).raise_for_status()  # the newest, and not pinned
    broken = tiny.write(tmp_path, version=3, sharpness=0.7).path
    (broken / "model.onnx").write_bytes(b"cut short")
    newer = broken.rename(models / "tiny" / "3")
    eventually(lambda: client.get("/v1/models/tiny").json()["refused"])
    assert client.post("/v1/models/rescan").json()["refused"][0]["version"] == 3
    assert client.put("/v1/models/tiny/default", json={"version": 3}).status_code == 422
    shutil.rmtree(newer)


def test_a_version_that_was_checked_and_is_not_wanted_after_all(watched, client):
    """Its engine goes again, and its memory with it."""
    _, models, _ = watched
    client.put("/v1/models/tiny/gate", json={"threshold": -3.5}).raise_for_status()
    strange = tiny.write(models, version=9, sharpness=9.0).path  # all of its scores are below that threshold
    refused = client.post("/v1/models/tiny/versions/9")
    assert refused.status_code == 422 and "would reject" in refused.text
    shutil.rmtree(strange)
