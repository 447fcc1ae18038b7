"""Fronts and an engine process on a simulated device, in real processes: the same answers as on a CPU, and what a dead
front, a dead engine and a lost device cost."""

import contextlib
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests import tiny
from tests.hammer import Hammer, eventually
from tests.running import RunningService
from tests.sabotage import ADMIN, SHARPNESS, breakable_engine, has_ended, num_counted, put_default, write_versions
from tests.service.pictures import BROKEN, RED, encode

DEVICE = ("--providers", "simulated:fixed=2:image=0.1:replan=5", "--log-requests-per-second", "0")
PICTURES = [encode(image) for image in tiny.familiar(6, seed=5)[0]]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    models = write_versions(tmp_path_factory.mktemp("models"))
    tiny.write_fitted(models, name="fitted")
    return models


@pytest.fixture(scope="module")
def service(directory, tmp_path_factory):
    flags = (*DEVICE, "--serve", "tiny@1,fitted", "--default-model", "tiny")
    with RunningService(directory, tmp_path_factory.mktemp("device"), *flags) as service:
        yield service


def is_whole(service, num_fronts=2, num_engines=1):
    try:
        text = httpx.get(f"{service.url}/metrics", timeout=5).text
    except httpx.HTTPError:
        return False
    is_ready = f"portcullis_workers_ready {num_fronts}.0" in text and "portcullis_engines 1.0" in text
    return is_ready and (len(service.fronts()), len(service.engines())) == (num_fronts, num_engines)


def answer(url, picture, **query):
    return without_id(httpx.post(f"{url}/v1/predict", content=picture, params=query).raise_for_status().json())


def without_id(found):
    return {name: value for name, value in found.items() if name != "request_id"}


def test_both_layouts_give_the_same_answers(service, directory, tmp_path):
    flags = ("--serve", "tiny@1,fitted", "--default-model", "tiny", "--workers", "1")
    with RunningService(directory, tmp_path, *flags) as on_cpu:
        for picture in PICTURES:
            for query in ({}, {"model": "fitted", "explain": "true", "set": "0.9", "top_k": 3}):
                assert answer(service.url, picture, **query) == answer(on_cpu.url, picture, **query)
        files = [("files", (f"{number}.png", picture)) for number, picture in enumerate([*PICTURES, BROKEN])]
        there, here = (
            httpx.post(f"{url}/v1/predict/batch", files=files).raise_for_status().json()["results"]
            for url in (service.url, on_cpu.url)
        )
    for one, other in zip(there[:-1], here[:-1], strict=True):
        assert one["answer"]["verdict"] == other["answer"]["verdict"]
        assert one["answer"]["label"] == other["answer"]["label"]
        assert one["answer"]["score"] == pytest.approx(other["answer"]["score"], abs=1e-5)  # in batches of other sizes
    assert there[-1]["error"]["code"] == here[-1]["error"]["code"] == "bad_image"


def test_many_clients_get_right_answers_in_shared_batches(service):
    before = num_counted(service.runtime)
    with Hammer(service.url, SHARPNESS, 16) as hammer:
        hammer.wait_for(600)
    assert not hammer.wrong
    assert set(hammer.statuses) == {200}
    eventually(lambda: num_counted(service.runtime) == before + hammer.num_answers)


def test_every_figure_of_the_layout_is_there(service):
    httpx.post(f"{service.url}/v1/predict", content=RED).raise_for_status()
    eventually(lambda: 'portcullis_queue_capacity{model="tiny",version="1"} 128.0' in metrics_of(service))
    text = metrics_of(service)
    for line in ("portcullis_workers_ready 2.0", "portcullis_engines 1.0", "portcullis_max_batch 64.0"):
        assert line in text
    for name in ("batch_size_count", "engine_busy_seconds_total", "out_of_memory_total", "broken_engines_total"):
        assert f'portcullis_{name}{{model="tiny",version="1"}}' in text
    assert 'provider="simulated:' in text
    ready = httpx.get(f"{service.url}/readyz").json()
    assert (ready["status"], ready["is_fallback"]) == ("ready", False)


def metrics_of(service):
    return httpx.get(f"{service.url}/metrics").text


def test_fronts_do_without_onnxruntime(service):
    loaded = {pid: "onnxruntime" in Path(f"/proc/{pid}/maps").read_text() for pid in service.workers()}
    assert loaded == {pid: pid in service.engines() for pid in service.workers()}


def test_versions_gates_and_shadows_change_as_they_do_on_a_cpu(service):
    with Hammer(service.url, SHARPNESS, 4) as hammer:
        hammer.wait_for(20)
        put_default(service, 2).raise_for_status()
        hammer.wait_for(20)
        gate = httpx.put(f"{service.url}/v1/models/tiny/gate", json={"operating_point": "accept99"}, headers=ADMIN)
        assert gate.status_code == 200, gate.text
        shadow = httpx.put(f"{service.url}/v1/models/tiny/shadow", json={"version": 1, "share": 1}, headers=ADMIN)
        assert shadow.status_code in (200, 202), shadow.text
        hammer.wait_for(20)
    assert not hammer.wrong
    assert set(hammer.statuses) == {200}
    assert set(hammer.versions) == {1, 2}

    def compared():
        answer(service.url, RED)
        return 'portcullis_shadow_total{model="tiny",result="same"' in metrics_of(service)

    eventually(compared)
    httpx.delete(f"{service.url}/v1/models/tiny/shadow", headers=ADMIN).raise_for_status()
    put_default(service, 1).raise_for_status()
    damaged = httpx.post(f"{service.url}/v1/models/tiny/versions/9", headers=ADMIN)
    assert damaged.status_code in (404, 405)
    assert answer(service.url, RED)["version"] == 1


def test_a_dead_front_costs_its_own_requests_only(service):
    eventually(lambda: is_whole(service))
    victim, other = service.fronts()
    [engine] = service.engines()
    with Hammer(service.url, SHARPNESS, 8) as hammer:
        hammer.wait_for(50)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: victim not in service.workers())
        hammer.wait_for(50)
        eventually(lambda: is_whole(service))
        hammer.wait_for(50)
    assert not hammer.wrong
    assert set(hammer.statuses) == {200}
    assert hammer.lost <= 8  # connections that it had, one request each
    assert service.engines() == [engine]
    assert other in service.fronts()


def test_a_dead_engine_process_is_replaced_while_fronts_say_try_again(service):
    eventually(lambda: is_whole(service))
    fronts, [engine] = service.fronts(), service.engines()
    os.kill(service.process.pid, signal.SIGSTOP)  # the supervisor: nobody is replaced before all has been seen
    try:
        os.kill(engine, signal.SIGKILL)
        refused = eventually(lambda: refusal_of(service))
        assert httpx.get(f"{service.url}/healthz").status_code == 200
    finally:
        os.kill(service.process.pid, signal.SIGCONT)
    eventually(lambda: refusal_of(service) is None)
    assert refused.headers["retry-after"] == "1"
    assert "is being replaced" in refused.json()["error"]["message"]
    eventually(lambda: is_whole(service))
    assert service.fronts() == fronts
    assert service.engines() != [engine]
    assert any("engine 0 ended with status -9" in line for line in service.lines)


def refusal_of(service):
    """The 503 that an image gets, if it does; anything else but an answer is a failure."""
    response = httpx.post(f"{service.url}/v1/predict", content=RED)
    assert response.status_code in (200, 503), response.text
    return response if response.status_code == 503 else None


@pytest.fixture
def breakable(directory, tmp_path):
    """Starts a service whose engines break once a file, which it gives too, says so."""
    (tmp_path / "site").mkdir()
    broken, environment = breakable_engine(tmp_path / "site")
    with contextlib.ExitStack() as stack:

        def start(*flags):
            usual = (*DEVICE, "--serve", "tiny@1", "--workers", "1")
            service = RunningService(directory, tmp_path / "runtime", *usual, *flags, environment=environment)
            return stack.enter_context(service), broken

        yield start


def test_a_lost_device_is_left_and_found_again_and_a_second_loss_ends_the_service(breakable):
    service, broken = breakable()
    [engine] = service.engines()
    broken.write_text(f"fail {engine}")
    assert httpx.post(f"{service.url}/v1/predict", content=RED).status_code == 503

    def says_why():
        ready = httpx.get(f"{service.url}/readyz")
        return ready.status_code == 503 and "is being replaced" in ready.text

    eventually(says_why)
    eventually(lambda: is_whole(service, num_fronts=1))
    assert answer(service.url, RED)["label"] == "red"
    assert any("engine 0 cannot go on: the device is lost" in line for line in service.lines)
    assert 'portcullis_broken_engines_total{model="tiny",version="1"} 1.0' in metrics_of(service)
    broken.write_text("fail everybody")
    httpx.post(f"{service.url}/v1/predict", content=RED)
    assert service.process.wait(60) == 1
    assert any("engine 0 has failed again" in line for line in service.lines)


def test_a_hung_device_is_noticed_and_replaced(breakable):
    service, broken = breakable("--deadline-seconds", "1")
    [engine] = service.engines()
    broken.write_text(f"hang {engine}")
    assert httpx.post(f"{service.url}/v1/predict", content=RED, timeout=60).status_code == 504
    eventually(lambda: service.engines() != [engine])
    eventually(lambda: is_whole(service, num_fronts=1))
    assert any("the engine of tiny/1 is broken: a batch has been running" in line for line in service.lines)


def test_a_stop_answers_what_is_under_way_and_leaves_no_process(directory, tmp_path):
    with RunningService(directory, tmp_path, *DEVICE, "--serve", "tiny@1") as service:
        pids = service.workers()
        with Hammer(service.url, SHARPNESS, 8) as hammer:
            hammer.wait_for(100)
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(60) == 0
            hammer.stop()
        assert round(num_counted(tmp_path)) == hammer.statuses[200]
        assert has_ended(pids)


def test_where_the_supervisor_dies_fronts_and_engine_process_leave(directory, tmp_path):
    with RunningService(directory, tmp_path, *DEVICE, "--serve", "tiny@1") as service:
        pids = service.workers()
        service.process.kill()
        eventually(lambda: has_ended(pids))
