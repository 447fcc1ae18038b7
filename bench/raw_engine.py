"""What the engine can do with nothing around it: one process a core or a device, images already in memory."""

import contextlib
import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from multiprocessing.pool import Pool
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Queue

import numpy as np

from portcullis.bundle.manifest import ImageSpec


def images_per_second(
    bundle: Path,
    batch: int,
    environments: Sequence[dict[str, str]],
    seconds: float,
    files: Sequence[Path] = (),
) -> float:
    """Throughput of an engine for each environment, with one thread on a CPU, summed; `files` are decoded first."""
    with engines(environments) as pool:
        return sum(pool.starmap(_measure, [(bundle, batch, seconds, files)] * len(environments), chunksize=1))


def seconds_of_one(bundle: Path, environment: dict[str, str], seconds: float) -> float:
    """Median time of a batch of one, alone on the machine."""
    with engines([environment]) as pool:
        return pool.apply(_measure_one, (bundle, seconds))


@contextlib.contextmanager
def engines(environments: Sequence[dict[str, str]]) -> Iterator[Pool]:
    """A process for each environment: a device is hidden or shown by variables that are read when CUDA first loads."""
    context = multiprocessing.get_context("spawn")
    waiting = context.Queue()
    for environment in environments:
        waiting.put(environment)
    barrier = context.Barrier(len(environments))
    with context.Pool(len(environments), initializer=_keep, initargs=(barrier, waiting)) as pool:
        yield pool


def _measure_one(bundle: Path, seconds: float) -> float:
    from portcullis.bundle.engine import start
    from portcullis.bundle.files import load_bundle

    engine = start(load_bundle(bundle))
    images = np.zeros((1, *_shape(bundle)), np.uint8)
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        engine.run(images)
        times.append(time.perf_counter() - started)
    return float(np.median(times))


_barrier: Barrier | None = None


def _keep(barrier: Barrier, environments: "Queue[dict[str, str]]") -> None:
    global _barrier
    _barrier = barrier
    os.environ.update(environments.get())


def _measure(bundle: Path, batch: int, seconds: float, files: Sequence[Path]) -> float:
    from portcullis.bundle.engine import start
    from portcullis.bundle.files import load_bundle

    loaded = load_bundle(bundle)
    engine = start(loaded)
    zeros = np.zeros((batch, *_shape(bundle)), np.uint8)
    batches = _decoded(files, batch, loaded.manifest.image) if files else itertools.repeat(zeros)
    for _ in range(20):
        engine.run(zeros)
    assert _barrier is not None
    _barrier.wait()
    num_images, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        engine.run(next(batches))
        num_images += batch
    return num_images / elapsed


def _decoded(files: Sequence[Path], batch: int, spec: ImageSpec) -> Iterator[np.ndarray]:
    from portcullis.bundle.preprocess import decode

    turning = itertools.cycle(files)
    while True:
        yield np.stack([decode(next(turning).read_bytes(), spec) for _ in range(batch)])


def _shape(bundle: Path) -> tuple[int, int, int]:
    from portcullis.bundle.files import load_bundle

    image = load_bundle(bundle).manifest.image
    return image.height, image.width, 3
