"""Faults, with real processes under load: nothing wrong is answered, the service is ready again by itself.

bench/faults.py does the same for longer, and its figures are in docs/reliability.md.
"""

import json
import os
import shutil
import signal
import threading
import time

import httpx
import pytest

from portcullis.store.followers import Followers
from portcullis.store.state import StateStore
from tests import sabotage
from tests.hammer import PATIENCE_SECONDS, Hammer, eventually
from tests.sabotage import (
    ADMIN,
    DAY,
    SHARPNESS,
    fill,
    has_ended,
    is_whole,
    jumping_clock,
    num_counted,
    put_default,
)

pytestmark = pytest.mark.slow


def serve(directory, runtime, **options):
    """As in the bench, but a machine that stands still for a moment must not look like a flood."""
    return sabotage.serve(directory, runtime, "--overload-wait-seconds", "30", **options)


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """A models directory with two versions; each test gets a copy that it may damage."""
    return sabotage.write_versions(tmp_path_factory.mktemp("versions"))


@pytest.fixture
def directory(versions, tmp_path):
    shutil.copytree(versions, tmp_path / "models")
    return tmp_path / "models"


def test_workers_that_are_killed_cost_only_what_they_had_in_flight(directory, tmp_path):
    num_threads, num_kills = 4, 3
    with serve(directory, tmp_path / "runtime") as service:
        with Hammer(service.url, SHARPNESS, num_threads) as hammer:
            for kill in range(num_kills):
                hammer.wait_for(50)
                victim = service.workers()[kill % 2]
                os.kill(victim, signal.SIGKILL)
                eventually(lambda gone=victim: gone not in service.workers() and is_whole(service))
            hammer.wait_for(50)
        counted = num_counted(service.runtime)
    assert (hammer.wrong, set(hammer.statuses), hammer.refused) == ([], {200}, 0)
    assert hammer.lost <= num_kills * num_threads
    assert hammer.num_answers <= counted <= hammer.num_answers + hammer.lost  # a replaced worker goes on counting


def test_a_bundle_damaged_in_the_middle_of_a_swap_is_served_by_no_worker_that_has_not_checked_it(directory, tmp_path):
    graph = directory / "tiny" / "2" / "model.onnx"
    whole = graph.read_bytes()
    with serve(directory, tmp_path / "runtime") as service:
        store, followers = StateStore(service.runtime), Followers(service.runtime)

        def damage_as_soon_as_it_is_wanted():
            while store.read().models["tiny"].default == 1:
                pass
            graph.write_bytes(whole[: len(whole) // 2])

        with Hammer(service.url, SHARPNESS) as hammer:
            hammer.wait_for(50)
            saboteur = threading.Thread(target=damage_as_soon_as_it_is_wanted)
            saboteur.start()
            answer = put_default(service, 2)
            saboteur.join()
            assert answer.status_code in (200, 202)  # 202: with the worker that read a damaged file
            hammer.wait_for(200)  # by now both have tried
            during = dict(hammer.versions)
            graph.write_bytes(whole)
            eventually(lambda: not followers.behind(store.read().revision))
            before = hammer.versions[1]
            hammer.wait_for(200)
            assert hammer.versions[1] - before <= 4
            is_split = any("cannot serve tiny as wanted" in line for line in service.lines)
        assert (hammer.wrong, set(hammer.statuses), hammer.lost) == ([], {200}, 0)
        if is_split:  # one worker was too late: it went on with what it had
            assert during[1] > 0
        assert is_whole(service)


def test_a_state_file_cut_short_at_every_byte_changes_nothing(directory, tmp_path):
    with serve(directory, tmp_path / "runtime") as service:
        put_default(service, 2).raise_for_status()
        file = service.runtime / "state.json"
        whole = file.read_bytes()
        with Hammer(service.url, SHARPNESS, 2) as hammer:
            hammer.wait_for(20)
            for length in range(0, len(whole), 1):
                file.write_bytes(whole[:length])
                time.sleep(0.003)
            hammer.wait_for(50)
            assert set(hammer.versions) == {2}
            put_default(service, 1).raise_for_status()  # and it can be changed again
            put_default(service, 2).raise_for_status()
        assert (hammer.wrong, set(hammer.statuses), hammer.lost) == ([], {200}, 0)
        workers = service.workers()
        os.kill(service.process.pid, signal.SIGKILL)
        service.process.wait()
        file.write_bytes(whole[: len(whole) // 2])
        eventually(lambda: has_ended(workers))  # they drain by themselves
    with serve(directory, tmp_path / "runtime") as service:
        assert httpx.get(f"{service.url}/v1/models/tiny").json()["default_version"] == 2


@pytest.fixture
def small_disk(tmp_path):
    try:
        with sabotage.small_disk(tmp_path / "small") as directory:
            yield directory
    except PermissionError as error:
        pytest.skip(str(error))


def test_a_full_disk_refuses_changes_and_nothing_else(directory, small_disk):
    filler = small_disk / "filler"
    with serve(directory, small_disk) as service:
        with Hammer(service.url, SHARPNESS, 2) as hammer:
            hammer.wait_for(50)
            fill(filler)
            answer = put_default(service, 2)
            assert (answer.status_code, answer.json()["error"]["code"]) == (507, "state_not_written")
            hammer.wait_for(100)
            os.kill(service.workers()[0], signal.SIGKILL)  # even a worker can be replaced
            eventually(lambda: is_whole(service))
            hammer.wait_for(100)
            assert set(hammer.versions) == {1}
            filler.unlink()
            eventually(lambda: put_default(service, 2).status_code == 200)
            counted = httpx.get(f"{service.url}/v1/models/tiny/drift").json()["num_images_since_reset"]
            eventually(
                lambda: httpx.get(f"{service.url}/v1/models/tiny/drift").json()["num_images_since_reset"] > counted
            )
        assert (hammer.wrong, set(hammer.statuses)) == ([], {200})
        assert hammer.lost <= 2
    audited = [json.loads(line) for line in (small_disk / "audit.jsonl").read_text().splitlines()]
    assert [entry["version"] for entry in audited] == [2]  # once: the change that was refused is not in the log


def test_a_clock_that_jumps_disturbs_nothing(directory, tmp_path):
    """The wall clock of every process is set to and fro; the monotonic one goes on, as it does on a real machine."""
    clock, environment = jumping_clock(tmp_path)

    def report():
        return httpx.get(f"{service.url}/v1/models/tiny/drift", timeout=30).json()

    with serve(directory, tmp_path / "runtime", environment=environment) as service:
        with Hammer(service.url, SHARPNESS, 2) as hammer:
            for days in (30, -400, 0, -0.1, 3600):
                clock.write_text(str(days * DAY))
                hammer.wait_for(60)
                num_points = len(report()["history"])
                eventually(lambda seen=num_points: len(report()["history"]) > seen)
        assert (hammer.wrong, set(hammer.statuses), hammer.lost) == ([], {200}, 0)
        eventually(lambda: report()["num_images_since_reset"] == hammer.num_answers)  # not one score was missed
        offsets = [round((point["time"] - time.time()) / DAY) for point in report()["history"]]
    assert {30, -400, 3600} <= set(offsets)


def test_sigterm_in_the_middle_of_a_burst_loses_no_request_that_was_admitted(directory, tmp_path):
    with serve(directory, tmp_path / "runtime") as service, Hammer(service.url, SHARPNESS, 8) as hammer:
        hammer.wait_for(100)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(PATIENCE_SECONDS) == 0
        eventually(lambda: hammer.refused > 0)
        hammer.stop()
    assert (hammer.wrong, set(hammer.statuses) - {200, 503}) == ([], set())
    assert num_counted(service.runtime) == hammer.statuses[200]


def test_forty_swaps_in_a_row_under_load_answer_nothing_wrong(directory, tmp_path):
    with serve(directory, tmp_path / "runtime") as service:
        with Hammer(service.url, SHARPNESS, 2) as hammer, httpx.Client(timeout=30, headers=ADMIN) as client:
            url = f"{service.url}/v1/models/tiny/default"
            for swap in range(40):
                client.put(url, json={"version": 2 - swap % 2}).raise_for_status()
        assert (hammer.wrong, set(hammer.statuses), hammer.lost) == ([], {200}, 0)
        assert min(hammer.versions[1], hammer.versions[2]) > 0
        for worker in service.workers():
            assert len(os.listdir(f"/proc/{worker}/task")) < 20  # noqa: PTH208 (a count of threads)
