"""Faults around models that change, for `python -m bench.faults`."""

import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from bench import ballast
from bench.fault_figures import Figures, Ground, tally
from tests.hammer import Hammer, eventually
from tests.sabotage import ADMIN, SHARPNESS, num_behind, put_default, store_of

THREADS = 8
TURN_SECONDS = 3


def swaps(ground: Ground) -> Figures:
    """Swaps in a row through the API, under load."""
    num_swaps, seconds, memory = ground.some(1000, 40), [], []
    with ground.serve() as service:
        with Hammer(service.url, SHARPNESS, 2) as hammer, httpx.Client(timeout=60, headers=ADMIN) as client:
            for number in range(num_swaps):
                started = time.monotonic()
                body = {"version": 2 - number % 2}
                client.put(f"{service.url}/v1/models/tiny/default", json=body).raise_for_status()
                seconds.append(time.monotonic() - started)
                if number in (num_swaps // 10, num_swaps - 1):
                    memory.append(_resident_megabytes(service))
        threads = [len(list(Path(f"/proc/{worker}/task").iterdir())) for worker in service.workers()]
    return {
        "swaps": num_swaps,
        **tally(hammer),
        "lost": hammer.lost,
        "seconds until every worker has swapped, median": round(statistics.median(seconds), 3),
        "99 %": round(sorted(seconds)[int(0.99 * len(seconds))], 3),
        "MB of both workers after a tenth": memory[0],
        "MB at the end": memory[1],
        "threads of each worker at the end": threads,
    }


def large_engines(ground: Ground) -> Figures:
    """Swaps between two versions with 64 MB of weights each."""
    models = ground.directory / "large"
    for version in (1, 2):
        ballast.write(models, version, SHARPNESS[version])
    with ground.serve(models=models) as service, httpx.Client(timeout=60, headers=ADMIN) as client:
        url = f"{service.url}/v1/models/tiny"
        one = _settled_megabytes(service)
        client.post(f"{url}/versions/2").raise_for_status()
        two = _settled_megabytes(service)
        client.delete(f"{url}/versions/2").raise_for_status()
        again = _settled_megabytes(service)
        ends = []
        for _ in range(2):
            for number in range(ground.some(20, 4)):
                client.put(f"{url}/default", json={"version": 2 - number % 2}).raise_for_status()
            ends.append(_settled_megabytes(service))
    return {
        "MB of both workers with one version": one,
        "with two": two,
        "after one was unloaded": again,
        "after 20 swaps": ends[0],
        "after 40 swaps": ends[1],
    }


def damaged_bundles(ground: Ground) -> Figures:
    """A bundle is cut short in the middle of a swap, just when it is wanted, and mended half a second later."""
    graph = ground.models / "tiny" / "2" / "model.onnx"
    whole, num_split, seconds, rounds = graph.read_bytes(), 0, [], ground.some(40, 3)
    with ground.serve() as service, Hammer(service.url, SHARPNESS, 4) as hammer:
        store = store_of(service.runtime)

        def damage_and_mend() -> None:
            while store.read().models["tiny"].default == 1:  # type: ignore[union-attr]
                pass
            graph.write_bytes(whole[: len(whole) // 2])
            time.sleep(0.5)
            graph.write_bytes(whole)

        for _ in range(rounds):
            saboteur = threading.Thread(target=damage_and_mend, daemon=True)
            saboteur.start()
            lines, started = len(service.lines), time.monotonic()
            put_default(service, 2).raise_for_status()
            saboteur.join()
            eventually(lambda: num_behind(service.runtime) == 0, 30)  # type: ignore[union-attr]
            seconds.append(time.monotonic() - started)
            num_split += any("cannot serve tiny as wanted" in line for line in service.lines[lines:])
            put_default(service, 1).raise_for_status()
    return {
        "swaps": rounds,
        "of them with a worker that read a damaged file": num_split,
        **tally(hammer),
        "lost": hammer.lost,
        "seconds until all workers were in line all the same, at most": round(max(seconds), 2),
    }


def shadowed(ground: Ground) -> Figures:
    """A candidate sees all of the live traffic; with and without it by turns, medians of the turns."""
    figures: Figures = {}
    with ground.serve() as service:
        for name, threads in (("idle", 1), ("busy", THREADS)):
            turns: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for _ in range(ground.some(8, 2)):
                for is_shadowed in (False, True):
                    turns[is_shadowed].append(_milliseconds(service.url, threads, is_shadowed))
            for is_shadowed, measured in turns.items():
                p50, p99 = (statistics.median(values) for values in zip(*measured, strict=True))
                label = f"{name}, {'with' if is_shadowed else 'without'} shadow, ms p50 / p99"
                figures[label] = f"{p50:.2f} / {p99:.2f}"
    return figures


def _milliseconds(url: str, threads: int, is_shadowed: bool) -> tuple[float, float]:
    """p50 and p99 of a few seconds of load."""
    shadow = f"{url}/v1/models/tiny/shadow"
    if is_shadowed:
        httpx.put(shadow, json={"version": 2, "share": 1}, headers=ADMIN, timeout=30).raise_for_status()
    with Hammer(url, SHARPNESS, threads) as hammer:
        time.sleep(TURN_SECONDS)
    if is_shadowed:
        assert httpx.get(f"{url}/v1/models/tiny").json()["shadow"]["num_images"] > 0
        httpx.delete(shadow, headers=ADMIN, timeout=30).raise_for_status()
    assert not hammer.wrong
    milliseconds = sorted(1000 * value for value in hammer.seconds)
    return statistics.median(milliseconds), milliseconds[int(0.99 * len(milliseconds))]


def _resident_megabytes(service: Any) -> int:
    pages = [int(Path(f"/proc/{worker}/statm").read_text().split()[1]) for worker in service.workers()]
    return round(sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6)


def _settled_megabytes(service: Any) -> int:
    time.sleep(1)  # what was retired is freed within moments
    return _resident_megabytes(service)
