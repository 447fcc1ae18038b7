"""`python -m bench.offline`: `portcullis score` on all cores, and on Ray, against the engine with nothing around it."""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench import network, raw_engine
from bench.__main__ import RESULTS
from portcullis.bundle.engine import start
from portcullis.bundle.files import load_bundle
from portcullis.bundle.gate import DEFAULT_OPERATING_POINT
from portcullis.bundle.promises import choose
from portcullis.commands.on_ray.scoring import score_on_ray
from portcullis.commands.scoring.by_bundle import BATCH_IMAGES, BundleScorer
from portcullis.commands.scoring.images import Folder, find_images
from portcullis.commands.scoring.on_cores import score_on_cores
from portcullis.commands.scoring.rows import ScoreRow
from portcullis.commands.scoring.task import BLOCK_IMAGES, Task

ENGINE, DECODED, CORES, RAY = "engine alone", "engine, read and decoded", "score", "score --on ray"
NUM_PICTURES = 64
NUM_CORES = len(os.sched_getaffinity(0))
MARK = "BENCH_OFFLINE"
PROFILE_IMAGES = 256


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.offline", description=__doc__)
    parser.add_argument("--bundle", type=Path, help="default: the network of the other benchmarks, 32×32 PNGs")
    parser.add_argument("--images", type=Path, help="folder of images for that bundle")
    parser.add_argument("--blocks", type=int, default=40, help=f"of {BLOCK_IMAGES} images, scored in each round")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a measurement of the engine")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, every way in each; figures are medians")
    parser.add_argument("--name", default="resnet20, 32×32 PNG", help="what the figures are of, in the results")
    parser.add_argument("--out", type=Path, default=RESULTS / "offline.json")
    arguments = parser.parse_args()
    os.environ[MARK] = str(os.getpid())
    with tempfile.TemporaryDirectory() as directory:
        bundle = arguments.bundle or network.write(Path(directory) / "models").path
        folder = gather(Path(directory) / "images", arguments.images, arguments.blocks * BLOCK_IMAGES)
        rounds = [measure(bundle, folder, arguments.seconds) for _ in range(arguments.rounds)]
        milliseconds = processor_milliseconds(bundle, folder)
    wall, processor = (
        {way: statistics.median(one[way][clock] for one in rounds) for way in (ENGINE, DECODED, CORES, RAY)}
        for clock in (0, 1)
    )
    kept = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    kept[arguments.name] = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "num_cores": NUM_CORES,
        "num_images": arguments.blocks * BLOCK_IMAGES,
        "images_per_second_by_the_wall": wall,
        "images_per_second_by_processor_time": processor,
        "rounds": rounds,
        "processor_milliseconds_of_an_image": milliseconds,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(table(wall, processor))
    print("processor time of an image, ms:", ", ".join(f"{part} {each:.3f}" for part, each in milliseconds.items()))


def gather(target: Path, folder: Path | None, count: int) -> Path:
    """So many images: links to those of a folder, again and again, or PNGs of our own."""
    target.mkdir(parents=True)
    pictures = [file.resolve() for file in find_images(folder)] if folder else _own(target.parent)
    for number, file in zip(range(count), itertools.cycle(pictures), strict=False):
        (target / f"{number:07}{file.suffix}").symlink_to(file)
    return target


def _own(directory: Path) -> list[Path]:
    files = [directory / f"{seed}.png" for seed in range(NUM_PICTURES)]
    for seed, file in enumerate(files):
        file.write_bytes(network.png(seed))
    return files


def measure(bundle: Path, folder: Path, seconds: float) -> dict[str, tuple[float, float]]:
    """One round: images a second by the clock on the wall, and by processor time, as if the cores ran nothing else."""
    images = Folder(folder)
    keys = images.find()
    task = Task(bundle.resolve(), DEFAULT_OPERATING_POINT, images)
    files = [folder / key for key in keys[:2048]]
    return {
        ENGINE: _rates_of_engine(bundle, seconds),
        DECODED: _rates_of_engine(bundle, seconds, files),
        CORES: _rates(score_on_cores(task, keys), len(keys)),
        RAY: _in_a_process(_rates_on_ray, task, keys),
    }


def _rates_on_ray(task: Task, keys: Sequence[str]) -> tuple[float, float]:
    """In a process of its own: Ray Data does not outlive the cluster that it first met."""
    os.environ[MARK] = str(os.getpid())
    return _rates(score_on_ray(task, keys, None), len(keys))


def _in_a_process(work: Callable[..., tuple[float, float]], *arguments: object) -> tuple[float, float]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def _rates_of_engine(bundle: Path, seconds: float, files: Sequence[Path] = ()) -> tuple[float, float]:
    cores: list[dict[str, str]] = [{}] * NUM_CORES
    wall, processor = (
        raw_engine.images_per_second(bundle, BATCH_IMAGES, cores, seconds, files, clock)
        for clock in (time.perf_counter, time.process_time)
    )
    return wall, processor


def _rates(rows: Iterator[ScoreRow], count: int) -> tuple[float, float]:
    """From when every process has given a block or two to as long before the end: blocks are under way at both."""
    margin = 2 * NUM_CORES * BLOCK_IMAGES
    for number, _ in enumerate(rows, 1):
        if number == margin:
            started = time.perf_counter(), _processor_seconds_of_all()
        if number == count - margin:
            ended = time.perf_counter(), _processor_seconds_of_all()
    wall, processor = (after - before for before, after in zip(started, ended, strict=True))
    return (count - 2 * margin) / wall, NUM_CORES * (count - 2 * margin) / processor


def _processor_seconds_of_all() -> float:
    """Of this process and of all that it began and that live, Ray's own among them: they have our mark."""
    total = time.process_time()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={os.getpid()}".encode() in (process / "environ").read_bytes().split(b"\0"):
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def processor_milliseconds(bundle: Path, folder: Path) -> dict[str, float]:
    """Where the time of one process goes, whatever else the machine does meanwhile: medians of a few passes."""
    images = Folder(folder)
    keys = images.find()[:PROFILE_IMAGES]
    loaded = load_bundle(bundle)
    engine = start(loaded)
    scorer = BundleScorer(loaded, engine, choose(DEFAULT_OPERATING_POINT, loaded.manifest))
    batches = [scorer.prepare(images, keys[at : at + BATCH_IMAGES]) for at in range(0, len(keys), BATCH_IMAGES)]
    stacked = [np.stack(list(batch.pixels.values())) for batch in batches]
    parts = {
        "engine": lambda: [engine.run(pixels) for pixels in stacked],
        "read and decode": lambda: [scorer.prepare(images, keys[at : at + 1]) for at in range(len(keys))],
        "engine and rows": lambda: [scorer.run(batch) for batch in batches],
        "score": lambda: list(scorer.score(images, keys, 1)),
    }
    return {part: statistics.median(_processor_seconds(work) for _ in range(3)) for part, work in parts.items()}


def _processor_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started) / PROFILE_IMAGES


def table(wall: dict[str, float], processor: dict[str, float]) -> str:
    lines = ["| | images/s | by processor time | of the engine | with decoding |", "| --- | --- | --- | --- | --- |"]
    for way, rate in processor.items():
        shares = f"{rate / processor[ENGINE]:.2f} | {rate / processor[DECODED]:.2f}"
        lines.append(f"| {way} | {wall[way]:.0f} | {rate:.0f} | {shares} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
