"""How often the drift alarm is wrong, and how soon it is right: every figure of docs/drift.md.

python -m bench.drift            all of it, some fifteen minutes on one core
python -m bench.drift --quick    a tenth of the images, for a look
python -m bench.drift --bundle models/NAME/VERSION    with the scores of a real model too, from its manifest
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.random import Generator

from bench.drift_streams import (
    FASHION_MNIST,
    Source,
    drawn_from,
    edge_of_the_null,
    fashion_scores,
    images_to_alarm,
    images_to_false_alarm,
    images_until_alarm_ends,
    images_until_frozen_is_seen,
    new_detector,
    normal_scores,
    num_false_alarms,
    tnr_at_tpr95,
    unlucky_sets,
)
from service.gate import rejected_share_bound
from service.rings import RingReader, RingWriter, find_rings, model_key, read_window, ring_path


def print_false_alarms(random: Generator, sources: dict[str, Source], num_streams: int, cap: int) -> None:
    print(f"\n### Images to the first false alarm, n = 1000, {num_streams} streams, each its own set\n")
    print("| stream | A | cap | streams with an alarm | mean images, at least |\n| --- | --- | --- | --- | --- |")
    for name, source in sources.items():
        cap_here = cap if source is normal_scores else 20_000  # as many real images as there are
        runs = [images_to_false_alarm(random, source, 1000, 1e4, cap_here) for _ in range(num_streams)]
        print(f"| {name} | 10,000 | {cap_here:,} | {sum(run < cap_here for run in runs)} | {np.mean(runs):,.0f} |")
    runs = []
    for _ in range(num_streams):
        detector = new_detector(np.arange(1000.0), 1e4)
        while detector.alarm_raised_at is None:
            detector.update(edge_of_the_null(random, detector, 2000))
        runs.append(detector.alarm_raised_at)
    print(f"| at the edge of the null | 10,000 | none | {num_streams} | {np.mean(runs):,.0f} |")


def print_ten_million(random: Generator, num_sets: int, num_images: int) -> None:
    print(f"\n### {num_images:,} undrifted images, n = 1000\n")
    print("| calibration sets | A | alarms, by set | promised mean at most |\n| --- | --- | --- | --- |")
    unlucky = unlucky_sets(random, 1000, 5000)
    for name, sets in (
        (f"{num_sets} at random", [random.random(1000) for _ in range(num_sets)]),
        ("the 5 worst of 5000", unlucky[:5]),
    ):
        for threshold in (1e4, 1e6):
            alarms = sorted(num_false_alarms(random, calibration, threshold, num_images) for calibration in sets)
            print(f"| {name} | {threshold:,.0f} | {', '.join(map(str, alarms))} | {num_images / threshold:,.0f} |")
    print(f"\nOf 5000 sets {len(unlucky) / 5000:.1%} have a true share above a bound (promised: at most 2 %).")


def print_delays(random: Generator, sources: dict[str, Source], num_runs: int) -> None:
    print(f"\n### Images from the turn to the alarm, {num_runs} runs, 500 undrifted images before\n")
    print("| scores | outside | n | A | within 300 | median | 95 of 100 within |\n" + "| --- " * 7 + "|")
    for name, source in sources.items():
        for outside_share in (0.1, 0.2, 0.3, 1.0):
            for n in (1000, 5000):
                for threshold in (1e4, 1e6):
                    runs = [images_to_alarm(random, source, n, threshold, outside_share) for _ in range(num_runs)]
                    within, late = np.mean(np.array(runs) <= 300), np.quantile(runs, 0.95)
                    late_text = f"{late:.0f}" if late <= 3000 else "over 3000"
                    print(
                        f"| {name} | {outside_share:.0%} | {n} | {threshold:,.0f} | {within:.1%} | "
                        f"{np.median(runs):.0f} | {late_text} |"
                    )


def print_frozen(random: Generator) -> None:
    print("\n### A frozen camera: one p-value for ever; images to the alarm, over 1000 p-values\n")
    print("| n | A | soonest | latest |\n| --- | --- | --- | --- |")
    for n in (100, 1000, 5000):
        for threshold in (1e4, 1e6):
            p_grid = np.unique(np.ceil(np.linspace(0.001, 1, 1000) * (n + 1)) / (n + 1))
            runs = [images_until_frozen_is_seen(p, n, threshold) for p in p_grid]
            print(f"| {n} | {threshold:,.0f} | {min(runs)} | {max(runs)} |")
    ends = [images_until_alarm_ends(random, 1000, 1e6, 20_000) for _ in range(20)]
    print(
        f"\nAfter 20,000 images with 20 % outside the alarm (A = 1,000,000, n = 1000) ends within {max(ends)} images."
    )


def print_costs(random: Generator) -> None:
    print("\n### Costs\n\n| what | time |\n| --- | --- |")
    rejected_share_bound.cache_clear()
    calibration, uniform = random.normal(size=10_000), random.random(1_000_000)
    detector, seconds = _timed(lambda: new_detector(calibration, 1e6))
    print(f"| new detector, n = 10,000 | {seconds * 1e3:.1f} ms |")
    for chunk in (100, 1000, 10_000):
        chunks = uniform.reshape(-1, chunk)[: 200_000 // chunk]
        _, seconds = _timed(lambda chunks=chunks: [detector.update(values) for values in chunks])
        print(f"| evidence, one image in chunks of {chunk:,} | {seconds / chunks.size * 1e6:.2f} µs |")
    with tempfile.TemporaryDirectory() as directory:
        writer, key = RingWriter(ring_path(Path(directory), 0)), model_key("tiny", 1)
        _, seconds = _timed(lambda: [writer.append(key, 1e9, 0.5, 0.5, 1, False) for _ in range(200_000)])
        print(f"| ring, append | {seconds / 200_000 * 1e6:.2f} µs |")
        reader = RingReader(ring_path(Path(directory), 0))
        print(f"| ring, since, nothing new | {_timed(lambda: reader.since(200_001))[1] * 1e3:.1f} ms |")
        print(f"| ring, since, all 65,536 new | {_timed(lambda: reader.since(1))[1] * 1e3:.1f} ms |")
        seconds = _timed(lambda: read_window(find_rings(Path(directory)), key, 10_000))[1]
        print(f"| window of 10,000 from one ring | {seconds * 1e3:.1f} ms |")


def _timed(work):
    start = time.process_time()  # the processor's: other work on the machine does not count
    result = work()
    return result, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scores", type=Path)
    arguments = parser.parse_args()
    factor = 10 if arguments.quick else 1
    random = np.random.default_rng(20220505)
    pools = {}
    if FASHION_MNIST.is_dir():
        pools["Fashion-MNIST, noisy sensor"] = fashion_scores()
    if arguments.scores:
        with np.load(arguments.scores) as file:
            pools[arguments.scores.stem] = file["inside"].astype(np.float64), file["outside"].astype(np.float64)
    sources: dict[str, Source] = {"simulated, TNR@TPR95 60.0%": normal_scores}
    endless = dict(sources)  # those with images enough to wait for a false alarm
    for name, (inside, outside) in pools.items():
        title = f"{name}, TNR@TPR95 {tnr_at_tpr95(inside, outside):.1%}"
        sources[title] = drawn_from(inside, outside)
        if len(inside) >= 21_000:
            endless[title] = sources[title]
    print_costs(random)
    print_false_alarms(random, endless, 200, 200_000 // factor)
    print_delays(random, sources, 1000 // factor)
    print_frozen(random)
    print_ten_million(np.random.default_rng(1), 10, 10_000_000 // factor)  # its own seed: it is the longest


if __name__ == "__main__":
    main()
