"""How often the drift alarm is wrong, and how soon it is right: every figure of docs/drift.md.

python -m bench.drift            all of it: writes bench/results/drift.json and the tables of docs/drift.md
python -m bench.drift --quick    a tenth of the runs, for a look; writes nothing

Real scores come from bench.drift_scores; --scores names another file of them.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from bench import drift_document
from bench.drift_document import Table
from bench.drift_scores import SCORES
from bench.drift_streams import (
    RealScores,
    Source,
    drawn_from,
    edge_of_the_null,
    images_to_alarm,
    images_to_false_alarm,
    images_until_alarm_ends,
    images_until_frozen_is_seen,
    load_scores,
    new_detector,
    normal_scores,
    num_false_alarms,
    p_values,
    resampled_from,
    tnr_at_tpr95,
    unlucky_sets,
)
from portcullis.bundle.binomial import rejected_share_bound
from portcullis.drift.rings import (
    RingReader,
    RingWriter,
    find_rings,
    model_key,
    read_recent,
    ring_path,
)

NUM_STREAMS = 200
STREAM_IMAGES = 200_000
NUM_RUNS = 1000
MANY_IMAGES = 10_000_000
NUM_SETS, NUM_WORST_SETS, NUM_CANDIDATE_SETS = 10, 5, 5000
THRESHOLDS = (1e4, 1e6)
SHARES = (0.1, 0.2, 0.3, 1.0)


def false_alarms(random: Generator, real: RealScores, factor: int) -> Table:
    """Undrifted streams until the first alarm, or until they have been watched for long enough."""
    rows, cap = [], STREAM_IMAGES // factor
    resampled = resampled_from(real.inside)
    for name, source in (("simulated", normal_scores), (f"real scores of {real.bundle}", resampled)):
        runs = [images_to_false_alarm(random, source, 1000, 1e4, cap) for _ in range(NUM_STREAMS)]
        rows.append([name, "1000", f"{cap:,}", _count_alarms(runs, cap), _mean(runs)])
    runs = [_first_alarm(random, real) for _ in range(NUM_STREAMS)]
    name = f"test images of {real.bundle}, each once, the bundle's own calibration scores"
    cap = len(real.inside)
    rows.append([name, str(len(real.calibration)), f"{cap:,}", _count_alarms(runs, cap), _mean(runs)])
    runs = [_run_at_the_edge(random) for _ in range(NUM_STREAMS)]
    rows.append(["at the edge of the null", "1000", "to the alarm", str(NUM_STREAMS), _mean(runs)])
    return Table(("stream", "n", "watched for", "streams with an alarm", "mean images, at least"), rows)


def _first_alarm(random: Generator, real: RealScores) -> int:
    detector = new_detector(real.calibration, 1e4)
    detector.update(p_values(random.permutation(real.inside), real.calibration))
    return detector.alarm_raised_at or len(real.inside)


def _run_at_the_edge(random: Generator) -> int:
    detector = new_detector(np.arange(1000.0), 1e4)
    while detector.alarm_raised_at is None:
        detector.update(edge_of_the_null(random, detector, 2000))
    return detector.alarm_raised_at


def _count_alarms(runs: list[int], cap: int) -> str:
    return str(sum(run < cap for run in runs))


def _mean(runs: list[int]) -> str:
    return f"{np.mean(runs):,.0f}"


def delays(random: Generator, real: RealScores, factor: int) -> Table:
    """Images from the moment that a stream turns until the alarm."""
    rows = []
    for share in SHARES:
        for n in (1000, 5000):
            rows += _delay_rows(random, ["simulated, 60.0 %", f"{share:.0%}", str(n)], normal_scores, n, share, factor)
    for name, outside in real.outside.items():
        title = f"{name}, {100 * tnr_at_tpr95(real.inside, outside):.1f} %"
        source = drawn_from(real.inside, outside)
        rows += _delay_rows(random, [title, "20%", "1000"], source, 1000, 0.2, factor)
        rows += _delay_rows(random, [title, "20%", "the bundle's"], source, real.calibration, 0.2, factor)
    head = ("scores, TNR@TPR95", "outside", "n", "A", "within 300", "median", "95 of 100 within")
    return Table(head, rows)


def _delay_rows(
    random: Generator, start: list[str], source: Source, calibration: Any, share: float, factor: int
) -> Iterable[list[str]]:
    for threshold in THRESHOLDS:
        runs = [images_to_alarm(random, source, calibration, threshold, share) for _ in range(NUM_RUNS // factor)]
        within, late = np.mean(np.array(runs) <= 300), np.quantile(runs, 0.95)
        late_text = f"{late:.0f}" if late <= 3000 else "over 3000"
        median = np.median(runs)
        median_text = f"{median:.0f}" if median <= 3000 else "over 3000"
        yield [*start, f"{threshold:,.0f}", f"{within:.1%}", median_text, late_text]


def frozen(random: Generator, real: RealScores, factor: int) -> Table:
    """One image for ever: images to the alarm, the soonest and the latest over many p-values."""
    rows = []
    everything = np.concatenate([real.inside, *real.outside.values()])
    of_real = np.unique(p_values(everything, real.calibration))[::factor]
    steps = np.linspace(0.001, 1, 1000)
    grids = [(str(n), n, np.unique(np.ceil(steps * (n + 1)) / (n + 1))) for n in (100, 1000, 5000)]
    grids.append((f"{real.bundle}'s, every real image", len(real.calibration), of_real))
    for name, n, grid in grids:
        for threshold in THRESHOLDS:
            runs = [images_until_frozen_is_seen(p, n, threshold) for p in grid]
            rows.append([name, f"{threshold:,.0f}", str(min(runs)), str(max(runs))])
    return Table(("n", "A", "soonest", "latest"), rows)


def after_a_drift(random: Generator, real: RealScores, factor: int) -> Table:
    """How long an alarm outlasts its cause."""
    ends = [images_until_alarm_ends(random, 1000, 1e6, 20_000) for _ in range(20)]
    head = ("after 20,000 images with 20 % outside, n = 1000, A = 1,000,000, 20 runs", "images until the alarm ends")
    return Table(head, [["median", f"{np.median(ends):.0f}"], ["latest", str(max(ends))]])


def many_images(random: Generator, real: RealScores, factor: int) -> Table:
    """Alarms on very many undrifted images, the detector reset after each."""
    rows, num_images = [], MANY_IMAGES // factor
    unlucky = unlucky_sets(random, 1000, NUM_CANDIDATE_SETS)
    for name, sets in (
        (f"{NUM_SETS} at random", [random.random(1000) for _ in range(NUM_SETS)]),
        (f"the {NUM_WORST_SETS} worst of {NUM_CANDIDATE_SETS}", unlucky[:NUM_WORST_SETS]),
    ):
        for threshold in THRESHOLDS:
            alarms = sorted(num_false_alarms(random, calibration, threshold, num_images) for calibration in sets)
            promised = f"{num_images / threshold:,.0f}"
            rows.append([name, f"{threshold:,.0f}", f"{num_images:,}", ", ".join(map(str, alarms)), promised])
    share = f"{len(unlucky) / NUM_CANDIDATE_SETS:.1%}"
    rows.append([f"of {NUM_CANDIDATE_SETS}, those with a true share above a bound", "any", "none", share, "2 %"])
    return Table(("calibration sets", "A", "images a set", "alarms, by set", "promised at most"), rows)


def costs(random: Generator, real: RealScores, factor: int) -> Table:
    """Processor time: other work on the machine does not count, though it slows memory and caches."""
    rejected_share_bound.cache_clear()
    calibration, uniform = random.normal(size=10_000), random.random(1_000_000)
    detector, seconds = _timed(lambda: new_detector(calibration, 1e6))
    rows = [["new detector, n = 10,000", f"{seconds * 1e3:.1f} ms"]]
    for chunk in (100, 1000, 10_000):
        chunks = uniform.reshape(-1, chunk)[: 200_000 // chunk]
        _, seconds = _timed(lambda chunks=chunks: [detector.update(values) for values in chunks])
        rows.append([f"evidence, one image in chunks of {chunk:,}", f"{seconds / chunks.size * 1e6:.2f} µs"])
    with tempfile.TemporaryDirectory() as directory:
        writer, key = RingWriter(ring_path(Path(directory), 0)), model_key("tiny", 1)
        _, seconds = _timed(lambda: [writer.append(key, 1e9, 0.5, 0.5, 1, False) for _ in range(200_000)])
        rows.append(["ring, append", f"{seconds / 200_000 * 1e6:.2f} µs"])
        reader = RingReader(ring_path(Path(directory), 0))
        for name, work in (
            ("ring, since, nothing new", lambda: reader.since(200_001)),
            ("ring, since, all 65,536 new", lambda: reader.since(1)),
            ("window of 10,000 from one ring", lambda: read_recent(find_rings(Path(directory)), key, 10_000)),
        ):
            rows.append([name, f"{_timed(work)[1] * 1e3:.1f} ms"])
    return Table(("what", "time"), rows)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


SEEDS = {costs: 0, false_alarms: 20220505, delays: 20220506, frozen: 0, after_a_drift: 20220507, many_images: 1}
"""A seed of its own for each: one measurement can change without moving the others."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scores", type=Path, default=SCORES)
    arguments = parser.parse_args()
    real, started = load_scores(arguments.scores), time.monotonic()
    tables = {}
    for measure, seed in SEEDS.items():
        table = measure(np.random.default_rng(seed), real, 10 if arguments.quick else 1)
        tables[measure.__name__] = table
        print(f"\n### {measure.__name__.replace('_', ' ')}\n\n{table.markdown()}", flush=True)
    if not arguments.quick:
        content = {"bundle": real.bundle, "seconds": round(time.monotonic() - started)}
        content["tables"] = {name: table._asdict() for name, table in tables.items()}
        drift_document.RESULTS.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        drift_document.write()


if __name__ == "__main__":
    main()
