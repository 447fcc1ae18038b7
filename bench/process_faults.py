"""Faults of processes, disks and clocks, for `python -m bench.faults`."""

import contextlib
import os
import random
import signal
import statistics
import time
from pathlib import Path

import httpx

from bench.fault_figures import Figures, tally
from tests import sabotage
from tests.hammer import Hammer, eventually
from tests.sabotage import DAY, SHARPNESS, fill, is_whole, jumping_clock, num_counted, put_default, serve

THREADS = 8


def kills(directory: Path, scale: float) -> Figures:
    """A worker is killed (SIGKILL) every two seconds, ready or not; then some, one at a time."""
    num_kills, recovery = max(3, round(30 * scale)), []
    with (
        serve(directory / "models", directory / "runtime") as service,
        Hammer(service.url, SHARPNESS, THREADS) as hammer,
    ):
        hammer.wait_for(100)
        for _ in range(num_kills):
            if living := service.workers():
                os.kill(random.choice(living), signal.SIGKILL)
            time.sleep(2)
        eventually(lambda: is_whole(service), 120)
        lost_in_a_row = hammer.lost
        for _ in range(max(2, round(8 * scale))):
            started = time.monotonic()
            os.kill(random.choice(service.workers()), signal.SIGKILL)
            eventually(lambda: not is_whole(service), 5)
            eventually(lambda: is_whole(service), 60)
            recovery.append(time.monotonic() - started)
        hammer.stop()
        counted = num_counted(service.runtime)
    return {
        "kills in a row": num_kills,
        "requests not answered": lost_in_a_row,
        "connections refused": hammer.refused,
        **tally(hammer),
        "answers counted by the workers": round(counted),
        "seconds until a killed worker's successor is ready, median": round(statistics.median(recovery), 2),
        "the longest": round(max(recovery), 2),
    }


def full_disk(directory: Path, scale: float) -> Figures:
    """The runtime directory is a disk without a free byte; meanwhile a worker is killed every two seconds."""
    num_kills = max(2, round(10 * scale))
    with (
        sabotage.small_disk(directory / "small") as runtime,
        serve(directory / "models", runtime) as service,
        Hammer(service.url, SHARPNESS, 4) as hammer,
    ):
        hammer.wait_for(50)
        fill(runtime / "filler")
        statuses = []
        for _ in range(num_kills):
            statuses.append(put_default(service, 2).status_code)
            os.kill(random.choice(service.workers()), signal.SIGKILL)
            time.sleep(2)
            eventually(lambda: is_whole(service), 60)
        (runtime / "filler").unlink()
        afterwards = put_default(service, 2).status_code
    return {
        "kills": num_kills,
        **tally(hammer),
        "not answered": hammer.lost,
        "status of a swap meanwhile": sorted(set(statuses)),
        "and once there was space": afterwards,
    }


def truncated_state(directory: Path, scale: float) -> Figures:
    """state.json is cut short at every byte while it runs, then the service is killed and started at some lengths."""
    num_restarts, right, length = max(2, round(20 * scale)), 0, 0
    with serve(directory / "models", directory / "runtime") as service, Hammer(service.url, SHARPNESS, 2) as hammer:
        put_default(service, 2).raise_for_status()
        whole = (service.runtime / "state.json").read_bytes()
        before = dict(hammer.versions)
        for length in range(len(whole)):
            (service.runtime / "state.json").write_bytes(whole[:length])
            time.sleep(0.01)
        old = hammer.versions[1] - before.get(1, 0)
    for number in range(num_restarts):
        (directory / "runtime" / "state.json").write_bytes(whole[: number * len(whole) // num_restarts])
        with serve(directory / "models", directory / "runtime") as service:
            right += httpx.get(f"{service.url}/v1/models/tiny").json()["default_version"] == 2
            os.kill(service.process.pid, signal.SIGKILL)
            service.process.wait()
            with contextlib.suppress(httpx.HTTPError):
                while httpx.get(f"{service.url}/healthz", timeout=1):
                    time.sleep(0.05)
    return {
        "lengths while it ran": length + 1,
        **tally(hammer),
        "answers of the version before": old,
        "restarts after a SIGKILL of the supervisor": num_restarts,
        "that came back to the same state": right,
    }


def jumping_clocks(directory: Path, scale: float) -> Figures:
    """The wall clock of every process jumps by up to ten years, to and fro."""
    num_jumps = max(5, round(40 * scale))
    clock, environment = jumping_clock(directory)
    with serve(directory / "models", directory / "runtime", environment=environment) as service:
        url = f"{service.url}/v1/models/tiny/drift"
        with Hammer(service.url, SHARPNESS, 4) as hammer:
            for _ in range(num_jumps):
                clock.write_text(str(random.uniform(-3650, 3650) * DAY))
                hammer.wait_for(50)
        time.sleep(3)
        followed = httpx.get(url).json()["num_images_since_reset"]
    return {"jumps": num_jumps, **tally(hammer), "lost": hammer.lost, "images in the evidence of drift": followed}


def terminations(directory: Path, scale: float) -> Figures:
    """SIGTERM in the middle of a burst."""
    rounds, total, missing, seconds = max(2, round(10 * scale)), 0, 0, []
    for number in range(rounds):
        runtime = directory / f"runtime-{number}"
        with serve(directory / "models", runtime) as service, Hammer(service.url, SHARPNESS, 16) as hammer:
            hammer.wait_for(200)
            started = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            service.process.wait(60)
            seconds.append(time.monotonic() - started)
            hammer.stop()
        total += hammer.statuses[200]
        missing += round(num_counted(runtime)) - hammer.statuses[200]
        assert not hammer.wrong
    return {
        "terminations": rounds,
        "answers": total,
        "admitted but not answered": missing,
        "seconds to the end, at most": round(max(seconds), 2),
    }
