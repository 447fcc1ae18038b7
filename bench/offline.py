"""`python -m bench.offline`: `portcullis score` on all cores, and on Ray, against the engine with nothing around it."""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
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
PROFILE_IMAGES = 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.offline", description=__doc__)
    parser.add_argument("--bundle", type=Path, help="default: the network of the other benchmarks, 32×32 PNGs")
    parser.add_argument("--images", type=Path, help="folder of images for that bundle")
    parser.add_argument("--blocks", type=int, default=24, help=f"of {BLOCK_IMAGES} images, scored in each round")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a measurement of the engine")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, every way in each; figures are medians")
    parser.add_argument("--name", default="resnet20, 32×32 PNG", help="what the figures are of, in the results")
    parser.add_argument("--out", type=Path, default=RESULTS / "offline.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        bundle = arguments.bundle or network.write(Path(directory) / "models").path
        folder = gather(Path(directory) / "images", arguments.images, arguments.blocks * BLOCK_IMAGES)
        rounds = [measure(bundle, folder, arguments.seconds) for _ in range(arguments.rounds)]
        milliseconds = processor_milliseconds(bundle, folder)
    figures = {way: statistics.median(one[way] for one in rounds) for way in (ENGINE, DECODED, CORES, RAY)}
    kept = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    kept[arguments.name] = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "num_cores": len(os.sched_getaffinity(0)),
        "num_images": arguments.blocks * BLOCK_IMAGES,
        "images_per_second": figures,
        "rounds": rounds,
        "processor_milliseconds_of_an_image": milliseconds,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(table(figures))
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


def measure(bundle: Path, folder: Path, seconds: float) -> dict[str, float]:
    """One round, in images a second."""
    images = Folder(folder)
    keys = images.find()
    task = Task(bundle.resolve(), DEFAULT_OPERATING_POINT, images)
    cores: list[dict[str, str]] = [{}] * len(os.sched_getaffinity(0))
    files = [folder / key for key in keys[:2048]]
    return {
        ENGINE: raw_engine.images_per_second(bundle, BATCH_IMAGES, cores, seconds),
        DECODED: raw_engine.images_per_second(bundle, BATCH_IMAGES, cores, seconds, files),
        CORES: _rate(score_on_cores(task, keys), len(cores)),
        RAY: _rate(score_on_ray(task, keys, None), len(cores)),
    }


def _rate(rows: Iterator[ScoreRow], num_processes: int) -> float:
    """Without the start: from the moment that every process has given a block or two."""
    started, num_before = 0.0, 2 * num_processes * BLOCK_IMAGES
    for number, _ in enumerate(rows, 1):
        if number == num_before:
            started = time.perf_counter()
    return (number - num_before) / (time.perf_counter() - started)


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


def table(figures: dict[str, float]) -> str:
    lines = ["| | images/s | of the engine alone | of engine and decoding |", "| --- | --- | --- | --- |"]
    for way, rate in figures.items():
        lines.append(f"| {way} | {rate:.0f} | {rate / figures[ENGINE]:.2f} | {rate / figures[DECODED]:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
