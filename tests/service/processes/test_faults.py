"""Faults, with real processes under load: nothing wrong is answered, the service is ready again by itself.

bench/faults.py does the same for longer, and its figures are in docs/reliability.md.
"""

import os
import shutil
import signal
import threading
import time

import httpx
import pytest

from tests import sabotage
from tests.hammer import PATIENCE_SECONDS, Hammer, eventually
from tests.sabotage import (
    ADMIN,
    DAMAGES,
    DAY,
    SHARPNESS,
    audit_of,
    damage_database,
    default_of,
    fill,
    is_whole,
    jumping_clock,
    kill_whole,
    metric,
    num_behind,
    num_counted,
    put_default,
    store_of,
)
from tests.service.pictures import RED

pytestmark = pytest.mark.slow


def serve(directory, runtime, *flags, **options):
    """As in the bench, but a machine that stands still for a moment must not look like a flood."""
    return sabotage.serve(directory, runtime, "--overload-wait-seconds", "30", *flags, **options)


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
        store = store_of(service.runtime)

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
            eventually(lambda: num_behind(service.runtime) == 0)
            before = hammer.versions[1]
            hammer.wait_for(200)
            assert hammer.versions[1] - before <= 4
            is_split = any("cannot serve tiny as wanted" in line for line in service.lines)
        assert (hammer.wrong, set(hammer.statuses), hammer.lost) == ([], {200}, 0)
        if is_split:  # one worker was too late: it went on with what it had
            assert during[1] > 0
        assert is_whole(service)


def test_a_database_damaged_while_it_runs_is_moved_aside_and_the_state_stays(directory, tmp_path):
    with serve(directory, tmp_path / "runtime") as service:
        with Hammer(service.url, SHARPNESS, 2) as hammer:
            for damage in DAMAGES:
                eventually(lambda: put_default(service, 2).status_code == 200)
                num_moved = count_moved(service)
                damage_database(service.runtime, damage)
                eventually(lambda seen=num_moved, how=damage: count_moved(service) > seen or how == "removed")
                eventually(lambda: put_default(service, 1).status_code == 200)  # and it can be changed again
                hammer.wait_for(20)
        assert (hammer.wrong, set(hammer.statuses), hammer.lost) == ([], {200}, 0)
        eventually(lambda: put_default(service, 2).status_code == 200)
        kill_whole(service)
    with serve(directory, tmp_path / "runtime") as service:
        assert default_of(service) == 2
        assert count_moved(service) == len(DAMAGES) - 1


def test_a_database_found_damaged_at_a_start_is_moved_aside_and_the_settings_speak(directory, tmp_path):
    with serve(directory, tmp_path / "runtime") as service:
        put_default(service, 2).raise_for_status()
        kill_whole(service)
    damage_database(service.runtime, "overwritten")
    with serve(directory, tmp_path / "runtime") as service:
        assert default_of(service) == 1
        assert count_moved(service) == 1
        assert any("moved to store.db.damaged-" in line for line in service.lines)


def test_a_kill_at_any_moment_of_a_change_leaves_the_state_before_or_after(directory, tmp_path):
    """The whole service is killed while an admin swaps to and fro; what was answered 200 is there at the next start."""
    for round_number in range(2):
        with serve(directory, tmp_path / "runtime") as service:
            known = {default_of(service)}
            killer = threading.Timer(0.2 + 0.07 * round_number, kill_whole, (service,))
            killer.start()
            for swap in range(1000):
                version = 2 - swap % 2
                try:
                    answer = put_default(service, version)
                except httpx.HTTPError:
                    known.add(version)  # nobody was told
                    break
                known = {version} if answer.status_code in (200, 202) else known | {version}
            killer.join()
        with serve(directory, tmp_path / "runtime") as service:
            assert default_of(service) in known
        revisions = [entry["revision"] for entry in audit_of(tmp_path / "runtime")]
        assert revisions == sorted(set(revisions))


def count_moved(service):
    """Damaged files that were moved aside, as the metrics have it."""
    return metric(service, "database_damaged_files")


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
    versions = [entry["version"] for entry in audit_of(small_disk)]
    assert versions == [2]  # once: the change that was refused is not in the log


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


def test_who_still_comes_while_a_service_drains_is_answered(directory, tmp_path):
    """A balancer takes a moment to believe that somebody is not ready."""
    with serve(directory, tmp_path / "runtime", "--drain-seconds", "600") as service:
        service.process.send_signal(signal.SIGTERM)
        eventually(lambda: httpx.get(f"{service.url}/readyz", timeout=30).status_code == 503)
        assert httpx.get(f"{service.url}/v2/health/ready", timeout=30).status_code == 503
        answer = httpx.post(f"{service.url}/v1/predict", content=RED, timeout=30)
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        kill_whole(service)


def test_sigterm_in_the_middle_of_a_burst_loses_no_request_that_was_admitted(directory, tmp_path):
    with serve(directory, tmp_path / "runtime") as service, Hammer(service.url, SHARPNESS, 8) as hammer:
        hammer.wait_for(100)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(PATIENCE_SECONDS) == 0
        eventually(lambda: hammer.refused > 0)
        hammer.stop()
    assert (hammer.wrong, set(hammer.statuses)) == ([], {200})
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
