"""The tolerance of the self-test, by its promise: a shift that passes moves accept95's rejects by a stated little."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portcullis.bundle import shift
from portcullis.bundle.files import load_bundle
from portcullis.bundle.gate import ClassGate, Gate, summarise
from portcullis.bundle.manifest import CalibrationScores
from portcullis.bundle.promises import Promises, choose
from portcullis.bundle.shift import Shifts
from tests import tiny

ROOT = Path(__file__).parents[3]
SHIPPED = sorted(path.parent for path in (ROOT / "models").glob("*/*/manifest.json"))
SCALES = st.floats(1e-3, 1e3)


def rejected_share(scores: np.ndarray, threshold: float) -> float:
    return float((scores < threshold).mean())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_of_the_shipped_bundles_a_shift_that_passes_moves_the_rejects_by_what_is_promised(path):
    """Half a percentage point, or the three images that a calibration set of fewer than 600 can tell apart."""
    manifest = load_bundle(path).manifest
    scores = np.asarray(manifest.calibration.scores)
    threshold = choose("accept95", manifest).threshold
    tolerated, promised = shift.tolerated(manifest.calibration), shift.max_moved_share(manifest.calibration)

    def moved(by):
        return abs(rejected_share(scores + by, threshold) - rejected_share(scores, threshold))

    assert promised <= max(shift.MAX_MOVED_SHARE, shift.MIN_MOVED_IMAGES / len(scores))
    assert max(moved(tolerated), moved(-tolerated)) <= promised + 1e-12
    assert max(moved(3 * tolerated), moved(-3 * tolerated)) > promised, "three times as much is too much"


def test_what_was_tolerated_before_is_refused_now():
    """2 % of a score near -14 would have let accept95 of a shipped bundle reject three times as many."""
    manifest = load_bundle(ROOT / "models" / "cifar10-whitened" / "2").manifest
    threshold = choose("accept95", manifest).threshold
    before = 0.02 + 0.02 * abs(threshold)
    assert rejected_share(np.asarray(manifest.calibration.scores) - before, threshold) > 0.15
    assert before > 10 * shift.tolerated(manifest.calibration)


@given(st.integers(5, 3000), st.integers(0, 2**32 - 1), SCALES, st.floats(-1e3, 1e3), st.floats(-1, 1))
def test_no_tolerated_shift_moves_the_rejects_by_more_than_is_promised(num_images, seed, scale, centre, part):
    scores = np.sort(np.random.default_rng(seed).gumbel(centre, scale, num_images))
    calibration = summarise(scores.tolist())
    threshold = scores[max(1, int(0.05 * (num_images + 1))) - 1]
    moved_by = part * shift.tolerated(calibration)
    rounding = 1e-9 * (abs(centre) + scale)  # a sum in floating point may step over a neighbour
    moved = rejected_share(scores + moved_by * (1 - 1e-6), threshold + np.sign(moved_by) * rounding)
    assert abs(moved - rejected_share(scores, threshold)) <= shift.max_moved_share(calibration) + 1e-12
    assert shift.default_moved_share(abs(moved_by) * (1 - 1e-6), calibration) <= shift.max_moved_share(calibration)


def test_the_tolerance_follows_the_spread_and_not_the_size_of_scores():
    scores = np.random.default_rng(0).normal(0, 1, 2000)
    tolerated = shift.tolerated(summarise(scores.tolist()))
    assert shift.tolerated(summarise((scores - 1000).tolist())) == pytest.approx(tolerated)
    assert shift.tolerated(summarise((scores * 1e-3).tolist())) == pytest.approx(1e-3 * tolerated)


def test_the_moved_share_by_hand():
    calibration = CalibrationScores(num_images=10, scores=tuple(map(float, range(10))))
    at, by = Gate(None, "mmles", None, calibration, 3.0), Shifts(score=1.5)
    assert shift.moved_share(at, Shifts()) == 0
    assert shift.moved_share(at, by) == 0.2  # 3 and 4 fall below
    assert shift.moved_share(replace(at, threshold=0.0), by) == 0.2
    assert shift.moved_share(replace(at, threshold=100.0), by) == 0
    assert shift.moved_share(replace(at, threshold=-math.inf), by) == 0
    few = CalibrationScores(num_images=5, scores=(0.0, 1.0, 2.0, 3.0, 100.0))
    by_class = (ClassGate(3.0, calibration), ClassGate(100.0, few))
    assert shift.moved_share(replace(at, by_class=by_class), by) == pytest.approx((0.2 * 10 + 0.2 * 5) / 15)


def test_a_gate_on_a_part_moves_with_that_part_and_one_on_probabilities_with_those():
    promises = Promises(tiny.fitted_manifest())
    for text in ("accept95", "mmles:accept95", "mmles:accept95:by-class", "right99", "accept95+right99"):
        assert shift.moved_share(promises.gate(text), Shifts(0.0, (0.0, 0.0), 0.0)) == 0
    by_mmles, by_middle = Shifts(0.0, (0.01, 0.0)), Shifts(0.0, (0.0, 9.0))
    mmles = promises.gate("mmles:accept95")
    scores = np.array(mmles.calibration.scores)
    expected = (scores < mmles.threshold + 0.01).mean() - (scores < mmles.threshold).mean()
    assert shift.moved_share(mmles, by_mmles) >= expected - 1e-9 > 0
    assert shift.moved_share(mmles, by_middle) == 0
    assert shift.moved_share(promises.gate("accept95"), by_mmles) == 0  # the graph's own score did not move
    assert shift.moved_share(promises.gate("mmles:accept95:by-class"), by_mmles) > 0
    right = replace(promises.gate("right99"), min_probability=0.9, probabilities=(0.5, 0.88, 0.9, 0.92, 0.99))
    by_odds = Shifts(0.0, (0.0, 0.0), 0.25)  # 0.0225 of a probability of 0.9
    assert shift.moved_share(right, by_odds) == 0.4
    assert shift.moved_share(right, by_mmles) == 0
    both = replace(right, threshold=mmles.threshold, column=0, calibration=mmles.calibration)
    assert shift.moved_share(both, Shifts(0.0, (0.01, 0.0), 0.25)) == pytest.approx(0.4 + expected)


def test_a_difference_far_below_all_familiar_scores_counts_by_its_share_of_the_distance():
    calibration = CalibrationScores(num_images=11, scores=tuple(map(float, range(11))))
    assert shift.near_the_threshold(0.1, 5.0, calibration) == 0.1
    assert shift.near_the_threshold(0.1, 0.0, calibration) == 0.1  # the lowest counts in full
    assert shift.near_the_threshold(0.1, -495.0, calibration) == pytest.approx(0.001)
    assert shift.near_the_threshold(0.1, 400.0, calibration) == 0.1  # above them nothing is taken off
