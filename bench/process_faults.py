"""Faults of processes, disks and clocks, for `python -m bench.faults`."""

import itertools
import os
import random
import signal
import statistics
import threading
import time
from pathlib import Path

import httpx

from bench.fault_figures import Figures, tally
from tests import sabotage
from tests.hammer import Hammer, eventually
from tests.running import RunningService
from tests.sabotage import (
    DAMAGES,
    DAY,
    SHARPNESS,
    damage_database,
    default_of,
    fill,
    is_whole,
    jumping_clock,
    kill_whole,
    num_counted,
    put_default,
    serve,
)

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


def damaged_database(directory: Path, scale: float) -> Figures:
    """The database is overwritten, cut short or removed while it runs, and found damaged at some starts."""
    rounds, right, from_settings = max(3, round(20 * scale)), 0, 0
    with serve(directory / "models", directory / "runtime") as service, Hammer(service.url, SHARPNESS, 2) as hammer:
        for number in range(rounds):
            put_until_done(service, 2)
            damage_database(service.runtime, DAMAGES[number % len(DAMAGES)])
            eventually(lambda: put_default(service, 1).status_code == 200, 60)
            right += default_of(service) == 1
    for _ in range(max(2, round(6 * scale))):
        with serve(directory / "models", directory / "runtime") as service:
            put_until_done(service, 2)
            kill_whole(service)
        damage_database(directory / "runtime", "overwritten")
        with serve(directory / "models", directory / "runtime") as service:
            from_settings += default_of(service) == 1
    return {
        "damaged while it ran": rounds,
        **tally(hammer),
        "lost": hammer.lost,
        "that kept the state and could be changed again": right,
        "starts on a damaged file": max(2, round(6 * scale)),
        "that served what the settings say": from_settings,
    }


def killed_changes(directory: Path, scale: float) -> Figures:
    """The whole service is killed (SIGKILL) while an admin swaps to and fro, then started again."""
    rounds, kept = max(3, round(20 * scale)), 0
    for _ in range(rounds):
        with serve(directory / "models", directory / "runtime") as service:
            known = {default_of(service)}
            killer = threading.Timer(random.uniform(0.05, 1), kill_whole, (service,))
            killer.start()
            for version in itertools.cycle((2, 1)):
                try:
                    is_done = put_default(service, version).status_code in (200, 202)
                except httpx.HTTPError:
                    known.add(version)  # nobody was told
                    break
                known = {version} if is_done else known | {version}
            killer.join()
        with serve(directory / "models", directory / "runtime") as service:
            kept += default_of(service) in known
    return {"kills": rounds, "starts with what was answered last": kept}


def put_until_done(service: RunningService, version: int) -> None:
    eventually(lambda: put_default(service, version).status_code == 200, 60)


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
