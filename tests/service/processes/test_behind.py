"""A worker that does not follow: who is told so, and that it is true. Real processes."""

import concurrent.futures
import os
import re
import signal

import httpx
import pytest

from portcullis.client import Client
from tests import tiny
from tests.hammer import eventually
from tests.running import ADMIN_KEY, RunningService
from tests.sabotage import ADMIN
from tests.service.pictures import RED, encode

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    for version in (1, 2, 3):
        tiny.write(models, version=version)
    for name in ("one", "another", "third"):
        tiny.write(models, name=name)
    tiny.write_fitted(models, "fitted", version=1)
    serve = ("--serve", "tiny@1,one,another,fitted")
    with RunningService(models, tmp_path_factory.mktemp("runtime"), *serve) as service:
        yield service


@pytest.fixture
def stopped(service):
    """One worker stands still, so the other takes every new connection."""
    worker = service.workers()[1]
    os.kill(worker, signal.SIGSTOP)
    yield worker
    os.kill(worker, signal.SIGCONT)


def change(service, method, path, body=None):
    return httpx.request(method, f"{service.url}{path}", json=body, headers=ADMIN, timeout=60)


CALLS = [
    ("PUT", "/v1/models/tiny/gate", {"operating_point": "accept80"}),
    ("PUT", "/v1/models/tiny/shadow", {"version": 2, "share": 0.5}),
    ("POST", "/v1/models/tiny/versions/3", None),
    ("DELETE", "/v1/models/one", None),
    ("POST", "/v2/repository/models/another/unload", None),
    ("POST", "/v2/repository/models/third/load", None),
]


def test_a_change_that_a_worker_does_not_follow_is_accepted_and_names_it(service, stopped):
    with concurrent.futures.ThreadPoolExecutor(len(CALLS) + 1) as pool:
        answers = list(pool.map(lambda call: change(service, *call), CALLS))
    assert [answer.status_code for answer in answers] == [202] * len(CALLS)
    for answer in answers[:4]:
        assert [worker["worker"] for worker in answer.json()["behind"]] == [1]
        assert answer.json()["behind"][0]["reason"] == "it has not taken up the change yet"
    for answer in answers[4:]:
        message = r"worker 1 of \S+: it has not taken up the change yet"  # where clients look
        assert re.search(message, answer.json()["error"])
    with Client(service.url, key=ADMIN_KEY, timeout_seconds=60) as client:
        behind = client.set_gate("tiny", "accept90").behind
    assert [worker.worker for worker in behind] == [1]
    os.kill(stopped, signal.SIGCONT)
    eventually(lambda: change(service, *CALLS[0]).status_code == 200)
    answer = change(service, "DELETE", "/v1/models/tiny/versions/3")
    assert (answer.status_code, answer.json()["behind"]) == (200, [])
    thresholds = {httpx.post(f"{service.url}/v1/predict?model=tiny", content=RED).json()["threshold"] for _ in range(8)}
    assert len(thresholds) == 1


def test_so_is_a_calibrated_gate_that_is_to_answer(service, stopped):
    images, _ = tiny.familiar(60, seed=77)
    files = [("files", (f"{number}.png", encode(image))) for number, image in enumerate(images)]
    url = f"{service.url}/v1/models/fitted/calibrate?activate=true"
    answer = httpx.post(url, files=files, headers=ADMIN, timeout=60)
    assert answer.status_code == 202
    [behind] = answer.json()["behind"]
    assert (behind["worker"], behind["reason"]) == (1, "it has not taken up the change yet")
