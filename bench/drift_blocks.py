"""What a fleet's evidence costs and promises, taken in by blocks of counts: the tables "A fleet" of docs/drift.md.

python -m bench.drift_blocks            writes bench/results/drift_blocks.json and the tables
python -m bench.drift_blocks --quick    a tenth of the runs, for a look; writes nothing
"""

import argparse
import json
from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from bench import drift_document
from bench.drift_document import BLOCK_RESULTS, Table
from bench.drift_streams import Scores, edge_of_the_null, images_to_alarm, new_detector, normal_scores, p_values
from portcullis.drift.block_evidence import BlockEvidence, after, begin
from portcullis.drift.evidence import Detector

SIZES = (10, 100, 1000)
NUM_STREAMS, NUM_RUNS = 60, 200
MOST_IMAGES = 200_000
NUM_BEFORE, NUM_TURNED = 2000, 12_000
SHARES = {"20%": 0.2, "a third": 1 / 3}


def block_false_alarms(random: Generator, factor: int) -> Table:
    """The hardest undrifted stream, with blocks of one size and with blocks that end by what is in them."""
    cuts: dict[str, Callable[[Scores], list[Scores]]] = {
        f"of {size}": lambda stream, size=size: np.split(stream, range(size, len(stream), size)) for size in SIZES
    }
    cuts["each ends with the first familiar image behind ten"] = _behind_ten
    rows = []
    for name, cut in cuts.items():
        runs = [_images_at_the_edge(random, cut, 1e4) for _ in range(NUM_STREAMS // factor)]
        num_alarms = sum(run < MOST_IMAGES for run in runs)
        rows.append([name, "10,000", f"{MOST_IMAGES:,}", f"{num_alarms} of {len(runs)}", f"{np.mean(runs):,.0f}"])
    return Table(("blocks", "A", "watched for", "streams with an alarm", "mean images, at least"), rows)


def block_delays(random: Generator, factor: int) -> Table:
    """Images from the turn of a stream to the end of the block that raised the alarm."""
    rows = []
    for share_text, share in SHARES.items():
        for threshold in (1e4, 1e6):
            by_image = [
                images_to_alarm(random, normal_scores, 1000, threshold, share) for _ in range(NUM_RUNS // factor)
            ]
            rows.append([share_text, f"{threshold:,.0f}", "one by one", *_quantiles(by_image)])
            for size in SIZES:
                runs = [_images_by_block(random, threshold, share, size) for _ in range(NUM_RUNS // factor)]
                rows.append([share_text, f"{threshold:,.0f}", f"blocks of {size}", *_quantiles(runs)])
    return Table(("outside", "A", "taken in", "median", "95 of 100 within"), rows)


def _behind_ten(stream: Scores) -> list[Scores]:
    ends, last = [], 0
    for index, p in enumerate(stream):
        if index - last >= 10 and p > 0.05:
            last = index + 1
            ends.append(last)
    return [block for block in np.split(stream, ends) if len(block)]


def _images_at_the_edge(random: Generator, cut: Callable[[Scores], list[Scores]], threshold: float) -> int:
    detector = new_detector(np.arange(1000.0), threshold)
    evidence = begin(detector.events.bounds.tolist(), threshold)
    while evidence.num_images < MOST_IMAGES:
        for block in cut(edge_of_the_null(random, detector, 4000)):
            evidence = after(evidence, detector.events.counts(block))
            if evidence.alarm:
                return evidence.num_images
    return MOST_IMAGES


def _images_by_block(random: Generator, threshold: float, share: float, size: int) -> int:
    """The stream turns anywhere in a block; NUM_TURNED where there is no alarm until then."""
    is_outside = random.random(NUM_TURNED) < share
    inside, outside = normal_scores(random, 1000 + NUM_BEFORE + int((~is_outside).sum()), int(is_outside.sum()))
    calibration, before, rest = np.split(inside, [1000, 1000 + NUM_BEFORE])
    turned = np.empty(NUM_TURNED)
    turned[is_outside], turned[~is_outside] = outside, rest
    detector, offset = new_detector(calibration, threshold), int(random.integers(size))
    stream = p_values(np.concatenate([before, turned]), calibration)
    ends = np.arange(NUM_BEFORE % size + offset, len(stream), size)
    return _first_alarm(detector, threshold, np.split(stream, ends[ends > 0]))


def _first_alarm(detector: Detector, threshold: float, blocks: list[Scores]) -> int:
    evidence: BlockEvidence = begin(detector.events.bounds.tolist(), threshold)
    num_images = 0
    for block in blocks:
        evidence = after(evidence, detector.events.counts(block))
        num_images += len(block)
        if evidence.alarm and num_images > NUM_BEFORE:
            return num_images - NUM_BEFORE
        if evidence.alarm:  # a false alarm before the turn must not count as a find
            evidence = begin(detector.events.bounds.tolist(), threshold)
    return NUM_TURNED


def _quantiles(runs: list[int]) -> list[str]:
    return [f"{np.quantile(runs, quantile):,.0f}" for quantile in (0.5, 0.95)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    factor = 10 if parser.parse_args().quick else 1
    tables = {}
    for seed, measure in enumerate((block_false_alarms, block_delays)):
        tables[measure.__name__] = table = measure(np.random.default_rng(seed), factor)
        print(f"\n{table.markdown()}", flush=True)
    if factor == 1:
        content = {"tables": {name: table._asdict() for name, table in tables.items()}}
        BLOCK_RESULTS.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        drift_document.write(BLOCK_RESULTS)


if __name__ == "__main__":
    main()
