"""Faults of processes and clocks, for `python -m bench.faults`."""

import os
import random
import signal
import statistics
import time

import httpx

from bench.fault_figures import Figures, Ground, tally
from tests.hammer import Hammer, eventually
from tests.sabotage import DAY, SHARPNESS, is_whole, jumping_clock, num_counted

THREADS = 8


def kills(ground: Ground) -> Figures:
    """A worker is killed (SIGKILL) every two seconds, ready or not; then some, one at a time."""
    num_kills, recovery = ground.some(30, 3), []
    with (
        ground.serve() as service,
        Hammer(service.url, SHARPNESS, THREADS) as hammer,
    ):
        hammer.wait_for(100)
        for _ in range(num_kills):
            if living := service.workers():
                os.kill(random.choice(living), signal.SIGKILL)
            time.sleep(2)
        eventually(lambda: is_whole(service), 120)
        lost_in_a_row = hammer.lost
        for _ in range(ground.some(8, 2)):
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


def jumping_clocks(ground: Ground) -> Figures:
    """The wall clock of every process jumps by up to ten years, to and fro."""
    num_jumps = ground.some(40, 5)
    clock, environment = jumping_clock(ground.directory)
    with ground.serve(environment=environment) as service:
        url = f"{service.url}/v1/models/tiny/drift"
        with Hammer(service.url, SHARPNESS, 4) as hammer:
            for _ in range(num_jumps):
                clock.write_text(str(random.uniform(-3650, 3650) * DAY))
                hammer.wait_for(50)
        time.sleep(3)
        followed = httpx.get(url).json()["num_images_since_reset"]
    return {"jumps": num_jumps, **tally(hammer), "lost": hammer.lost, "images in the evidence of drift": followed}


def terminations(ground: Ground) -> Figures:
    """SIGTERM in the middle of a burst."""
    rounds, total, missing, seconds = ground.some(10, 2), 0, 0, []
    for number in range(rounds):
        runtime = ground.directory / f"runtime-{number}"
        with ground.serve(runtime) as service, Hammer(service.url, SHARPNESS, 16) as hammer:
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
