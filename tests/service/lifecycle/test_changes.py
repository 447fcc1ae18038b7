"""Models that change while they are served: a real service with two workers, under load."""

import json
import re
import shutil

import httpx
import pytest

from portcullis.bundle import gate
from portcullis.bundle.sources.source import DirectorySource
from portcullis.lifecycle.first_state import plan
from portcullis.processes.stores import DATABASE_FILE, open_local
from portcullis.store.sqlite import Sqlite
from portcullis.store.state import StateStore
from tests import tiny
from tests.hammer import Hammer, eventually
from tests.running import ADMIN_KEY, RunningService
from tests.sabotage import audit_of
from tests.service.pictures import RED

SHARPNESS = {1: 1.0, 2: 1.5, 3: 0.7}
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("changing")
    tiny.write(directory, version=1, sharpness=SHARPNESS[1])
    return directory


@pytest.fixture(scope="module")
def service(directory, tmp_path_factory):
    flags = ("--watch-models-seconds", "0.2", "--log-requests-per-second", "0", "--overload-wait-seconds", "30")
    with RunningService(directory, tmp_path_factory.mktemp("runtime"), *flags) as service:
        yield service


@pytest.fixture
def client(service):
    with httpx.Client(base_url=service.url, headers=ADMIN, timeout=30) as client:
        yield client


@pytest.fixture(autouse=True)
def fresh(service, directory, client):
    """Every test starts with version 1 pinned, 2 and 3 on disk but not loaded, and nothing else."""
    yield
    client.put("/v1/models/tiny/default", json={"version": 1}).raise_for_status()
    for version in client.get("/v1/models/tiny").json()["versions"]:
        if version["version"] != 1:
            client.delete(f"/v1/models/tiny/versions/{version['version']}").raise_for_status()
    for name in directory.iterdir():
        if name.name != "tiny":
            shutil.rmtree(name)
    for path in (directory / "tiny").iterdir():
        if path.name != "1":
            shutil.rmtree(path)


def add(directory, version, name="tiny"):
    return tiny.write(directory, name=name, version=version, sharpness=SHARPNESS[version])


def served(client):
    model = client.get("/v1/models/tiny").json()
    return model["default_version"], model["is_pinned"], [version["version"] for version in model["versions"]]


def swaps(client, result, name="tiny"):
    text = client.get("/metrics").text
    line = f'portcullis_model_swaps_total{{model="{name}",result="{result}"}} '
    return sum(float(row.removeprefix(line)) for row in text.splitlines() if row.startswith(line))


def pin(client):
    client.put("/v1/models/tiny/default", json={"version": 1}).raise_for_status()


def test_a_swap_under_load_fails_no_request_and_is_over_when_the_call_returns(client, service, directory):
    pin(client)
    add(directory, 2)
    with Hammer(service.url, SHARPNESS) as hammer:
        hammer.wait_for(50)
        answer = client.put("/v1/models/tiny/default", json={"version": 2})
        assert answer.json()["default_version"] == 2
        counted = dict(hammer.versions)
        hammer.wait_for(100)
        new_after = hammer.versions[2] - counted.get(2, 0)
        old_after = hammer.versions[1] - counted.get(1, 0)
        client.put("/v1/models/tiny/default", json={"version": 1}).raise_for_status()
        hammer.wait_for(50)
    assert (set(hammer.statuses), hammer.wrong, hammer.lost) == ({200}, [], 0)
    assert old_after <= 4  # only what was on its way already
    assert new_after >= 90


def test_a_version_is_loaded_asked_for_and_unloaded(client, directory):
    pin(client)
    add(directory, 2)
    assert client.post("/v1/predict?version=2", content=RED).status_code == 404
    answer = client.post("/v1/models/tiny/versions/2")
    assert (answer.status_code, served(client)) == (200, (1, True, [1, 2]))
    for _ in range(8):  # whichever worker answers
        with httpx.Client(base_url=client.base_url) as fresh_connection:
            assert fresh_connection.post("/v1/predict?version=2", content=RED).json()["version"] == 2
            assert fresh_connection.post("/v1/predict", content=RED).json()["version"] == 1
    assert client.delete("/v1/models/tiny/versions/1").status_code == 409
    assert client.delete("/v1/models/tiny/versions/2").status_code == 200
    assert client.delete("/v1/models/tiny/versions/2").status_code == 404
    assert served(client) == (1, True, [1])


def test_a_loaded_version_stays_when_the_default_goes_on(client, directory):
    pin(client)
    add(directory, 2)
    client.post("/v1/models/tiny/versions/1").raise_for_status()
    client.put("/v1/models/tiny/default", json={"version": 2}).raise_for_status()
    assert served(client) == (2, True, [1, 2])
    client.delete("/v1/models/tiny/versions/1").raise_for_status()
    assert served(client) == (2, True, [2])


def test_only_an_admin_may_change_and_every_change_is_audited(client, service, directory):
    pin(client)
    add(directory, 2)
    calls = [
        ("PUT", "/v1/models/tiny/default", {"version": 2}),
        ("POST", "/v1/models/tiny/versions/2", None),
        ("DELETE", "/v1/models/tiny/versions/2", None),
        ("DELETE", "/v1/models/tiny", None),
        ("PUT", "/v1/models/tiny/shadow", {"version": 2, "share": 1}),
        ("DELETE", "/v1/models/tiny/shadow", None),
        ("POST", "/v1/models/tiny/shadow/promote", None),
        ("POST", "/v1/models/rescan", None),
    ]
    for method, path, body in calls:
        assert client.request(method, path, json=body, headers={"authorization": ""}).status_code == 401, path
        assert client.request(method, path, json=body, headers={"authorization": "Bearer no"}).status_code == 403, path
    assert served(client) == (1, True, [1])
    client.put("/v1/models/tiny/default", json={"version": 2}).raise_for_status()
    lines = audit_of(service.runtime)
    entry = lines[-1]
    assert (entry["key"], entry["action"], entry["model"], entry["version"]) == ("tester", "default", "tiny", 2)
    assert ADMIN_KEY not in str(lines)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("PUT", "/v1/models/tiny/default", {"version": 9}, 404, "no version 9 .* there are: 1, 2"),
        ("PUT", "/v1/models/tiny/default", {"version": 1, "pin": False}, 422, "version 2 is newer than 1"),
        ("PUT", "/v1/models/nobody/default", {}, 404, "there are: tiny"),
        ("POST", "/v1/models/../versions/1", None, 404, ""),
        ("POST", "/v1/models/%2e%2e/versions/1", None, 404, ""),
        ("POST", "/v1/models/tiny/versions/9", None, 404, "there are: 1, 2"),
        ("POST", "/v1/models/tiny/versions/0", None, 400, "version"),
        ("DELETE", "/v1/models/nobody", None, 404, "there are: tiny"),
        ("PUT", "/v1/models/tiny/shadow", {"version": 1, "share": 1}, 409, "answers already"),
        ("PUT", "/v1/models/tiny/shadow", {"version": 2, "share": 0}, 400, "share"),
        ("DELETE", "/v1/models/tiny/shadow", None, 409, "no candidate"),
        ("POST", "/v1/models/tiny/shadow/promote", None, 409, "no candidate"),
        ("PUT", "/v1/models/tiny/gate", {"operating_point": "accept99.99"}, 422, "needs at least"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(client, directory, method, path, body, status, text):
    pin(client)
    add(directory, 2)
    answer = client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert re.search(text, answer.json()["error"]["message"])
    assert served(client) == (1, True, [1])


def corrupt_graph(bundle):
    graph = bundle.path / "model.onnx"
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)


def lie_in_self_test(bundle):
    """The digests agree, but the graph does not answer as the manifest says."""
    manifest = json.loads((bundle.path / "manifest.json").read_text())
    manifest["self_test"]["scores"] = [score + 1 for score in manifest["self_test"]["scores"]]
    (bundle.path / "manifest.json").write_text(json.dumps(manifest))


def add_unknown_field(bundle):
    manifest = json.loads((bundle.path / "manifest.json").read_text())
    (bundle.path / "manifest.json").write_text(json.dumps(manifest | {"surprise": 1}))


def claim_another_name(bundle):
    manifest = json.loads((bundle.path / "manifest.json").read_text())
    (bundle.path / "manifest.json").write_text(json.dumps(manifest | {"version": 7}))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (corrupt_graph, "digest"),
        (lie_in_self_test, "self-test"),
        (add_unknown_field, "surprise"),
        (claim_another_name, "lies where tiny/2"),
    ],
)
def test_a_bundle_that_does_not_validate_changes_nothing_and_says_why(client, service, directory, damage, reason):
    pin(client)
    failed = swaps(client, "failed")
    draft = tiny.write(directory.parent / f"draft-{damage.__name__}", version=2)
    damage(draft)
    draft.path.rename(directory / "tiny" / "2")
    with Hammer(service.url, SHARPNESS, 2) as hammer:
        answer = client.put("/v1/models/tiny/default", json={"version": 2})
        hammer.wait_for(20)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_bundle")
    assert reason in answer.json()["error"]["message"]
    assert str(directory) not in answer.text
    assert (served(client), set(hammer.versions), hammer.wrong) == ((1, True, [1]), {1}, [])
    assert swaps(client, "failed") == failed + 1


def test_a_version_for_which_the_gate_in_force_makes_no_sense_is_refused(client, directory):
    pin(client)
    add(directory, 2)  # its scores are lower by half
    threshold = gate.operating_point("accept95", tiny.manifest(sharpness=SHARPNESS[1]).calibration).threshold
    client.put("/v1/models/tiny/gate", json={"threshold": threshold}).raise_for_status()
    answer = client.put("/v1/models/tiny/default", json={"version": 2})
    client.put("/v1/models/tiny/gate", json={"operating_point": "accept95"}).raise_for_status()
    assert answer.status_code == 422
    assert re.search("would reject (100|9[0-9])% of its familiar images", answer.json()["error"]["message"])
    assert client.put("/v1/models/tiny/default", json={"version": 2}).status_code == 200


def test_the_watcher_adopts_what_validates_and_shows_what_does_not(client, service, directory):
    pin(client)
    client.put("/v1/models/tiny/default", json={"version": None}).raise_for_status()  # unpinned
    add(directory, 2)
    eventually(lambda: served(client) == (2, False, [2]))
    draft = tiny.write(directory.parent / "draft-watched", version=3)
    corrupt_graph(draft)
    failed = swaps(client, "failed")
    draft.path.rename(directory / "tiny" / "3")
    eventually(lambda: client.get("/v1/models").json()["refused"])
    (refused,) = client.get("/v1/models/tiny").json()["refused"]
    assert (refused["model"], refused["version"]) == ("tiny", 3)
    assert "digest" in refused["reason"]
    assert served(client) == (2, False, [2])
    assert swaps(client, "failed") == failed + 1
    client.post("/v1/models/rescan").raise_for_status()  # it is known to be bad: not tried again
    assert swaps(client, "failed") == failed + 1
    shutil.rmtree(directory / "tiny" / "3")
    add(directory, 3)
    eventually(lambda: served(client) == (3, False, [3]))
    assert client.get("/v1/models").json()["refused"] == []


def test_the_watcher_leaves_a_pinned_name_alone_and_takes_a_new_name_in(client, directory):
    pin(client)
    add(directory, 2)
    add(directory, 1, name="other")
    eventually(lambda: client.get("/v1/models/other").status_code == 200)
    assert served(client) == (1, True, [1])
    assert client.post("/v1/predict?model=other", content=RED).json()["model"] == "other"
    assert client.delete("/v1/models/other").json() == {"unloaded": "other", "behind": []}
    assert client.post("/v1/models/rescan").json() == {
        "adopted": [],
        "refused": [],
        "behind": [],
    }  # an unloaded name stays so
    assert client.post("/v1/predict?model=other", content=RED).status_code == 404
    assert client.post("/v1/models/other/versions/1").status_code == 200
    assert client.post("/v1/predict?model=other", content=RED).status_code == 200
    client.delete("/v1/models/other").raise_for_status()


def test_a_slow_body_is_answered_by_the_version_it_was_admitted_for(client, directory):
    pin(client)
    add(directory, 2)
    reached = []

    def slowly():
        yield RED[:10]
        client.put("/v1/models/tiny/default", json={"version": 2}).raise_for_status()
        reached.append(True)
        yield RED[10:]

    with httpx.Client(base_url=client.base_url, timeout=30) as slow:
        answer = slow.post("/v1/predict", content=slowly(), headers={"content-type": "image/png"})
    assert (answer.status_code, answer.json()["version"], reached) == (200, 1, [True])


def test_a_shadow_is_compared_never_returned_and_promoted_with_one_call(client, service, directory):
    pin(client)
    add(directory, 2)
    client.put("/v1/models/tiny/shadow", json={"version": 2, "share": 1.0}).raise_for_status()
    answered = _answers(client.get("/metrics").text, 2)
    with Hammer(service.url, SHARPNESS, 1) as hammer:
        eventually(lambda: client.get("/v1/models/tiny").json()["shadow"]["num_images"] >= 50)
    assert (set(hammer.versions), set(hammer.statuses), hammer.wrong) == ({1}, {200}, [])
    shadow = client.get("/v1/models/tiny").json()["shadow"]
    assert (shadow["version"], shadow["share"], shadow["num_failed"]) == (2, 1.0, 0)
    assert shadow["label_agreement"] > 0.7  # the grey image has no clear label
    assert shadow["verdict_agreement"] > 0.99  # each at the gate of its own calibration scores
    assert abs(shadow["p_value_shift"]) < 0.05
    assert shadow["score_shift"] < -0.1  # a sharper graph has larger distances
    assert shadow["seconds"] > 0
    text = client.get("/metrics").text
    assert 'portcullis_shadow_total{model="tiny",result="same",version="2"}' in text
    assert 'portcullis_shadow_score_shift{model="tiny",version="2"}' in text
    assert 'portcullis_shadow_seconds_count{model="tiny",version="2"}' in text
    assert _answers(text, 2) == answered
    answer = client.post("/v1/models/tiny/shadow/promote").json()
    assert (answer["default_version"], answer["shadow"], answer["is_pinned"]) == (2, None, False)
    assert client.post("/v1/predict", content=RED).json()["version"] == 2


def _answers(text, version):
    lines = [line for line in text.splitlines() if line.startswith("portcullis_predictions_total")]
    return [line for line in lines if f'version="{version}"' in line]


def test_a_dropped_shadow_leaves_the_default_pinned(client, directory):
    pin(client)
    add(directory, 2)
    client.put("/v1/models/tiny/shadow", json={"version": 2, "share": 0.5}).raise_for_status()
    assert served(client) == (1, True, [1, 2])
    client.delete("/v1/models/tiny/shadow").raise_for_status()
    assert served(client) == (1, True, [1])


@pytest.mark.slow
def test_a_restart_adopts_what_appeared_and_validates_and_starts_whatever_else_lies_there(tmp_path):
    models, runtime = tmp_path / "models", tmp_path / "runtime"
    add(models, 1)
    add(models, 1, name="other")
    runtime.mkdir()
    database = Sqlite(runtime / DATABASE_FILE)
    open_local(database)
    StateStore(database).write(plan(DirectorySource(models), (), "accept95", None).without_model("other"))
    add(models, 2)
    lie_in_self_test(add(models, 3))  # nothing but an engine can tell that it is broken
    with RunningService(models, runtime) as service, httpx.Client(base_url=service.url) as client:
        assert served(client) == (2, False, [2])
        assert [model["name"] for model in client.get("/v1/models").json()["models"]] == ["tiny"]
        (refused,) = client.get("/v1/models").json()["refused"]
        assert (refused["model"], refused["version"]) == ("tiny", 3)
        assert "self-test" in refused["reason"]
