"""What the engine can do with nothing around it: one process a core, images already in memory."""

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

BATCHES = (1, 2, 4, 8, 16)


def images_per_second(bundle: Path, batch: int, num_processes: int, seconds: float) -> float:
    """Throughput of `num_processes` engines with one thread each, summed."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(num_processes)
    with context.Pool(num_processes, initializer=_keep, initargs=(barrier,)) as pool:
        return sum(pool.starmap(_measure, [(bundle, batch, seconds)] * num_processes, chunksize=1))


def seconds_of_one(bundle: Path, seconds: float) -> float:
    """Median time of a batch of one, alone on the machine."""
    from service.bundle import load_bundle
    from service.engine import Engine

    engine = Engine(load_bundle(bundle))
    images = np.zeros((1, *_shape(bundle)), np.uint8)
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        engine.run(images)
        times.append(time.perf_counter() - started)
    return float(np.median(times))


_barrier: Barrier | None = None


def _keep(barrier: Barrier) -> None:
    global _barrier
    _barrier = barrier


def _measure(bundle: Path, batch: int, seconds: float) -> float:
    from service.bundle import load_bundle
    from service.engine import Engine

    engine = Engine(load_bundle(bundle))
    images = np.zeros((batch, *_shape(bundle)), np.uint8)
    for _ in range(20):
        engine.run(images)
    assert _barrier is not None
    _barrier.wait()
    num_images, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        engine.run(images)
        num_images += batch
    return num_images / elapsed


def _shape(bundle: Path) -> tuple[int, int, int]:
    from service.bundle import load_bundle

    image = load_bundle(bundle).manifest.image
    return image.height, image.width, 3
