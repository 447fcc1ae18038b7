import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from portcullis.bundle import gate
from portcullis.drift.histogram import FAR_BELOW, NUM_STEPS, bucket_edges, continued, empty, plus
from portcullis.schemas.drift import ScoreHistogram

CALIBRATION = gate.summarise(np.random.default_rng(0).normal(-14.5, 0.4, 2000).tolist())


@given(hnp.arrays(np.float32, st.integers(0, 300), elements=st.floats(-60, 0, width=32)))
@settings(max_examples=100, deadline=None)
def test_the_counts_agree_with_numpy_histogram(scores):
    histogram = empty(CALIBRATION)
    # numpy's bins hold their lower edge, Prometheus's the upper one: mirrored they are the same
    mirrored = np.array([-np.inf, *-np.array(histogram.edges[::-1]), np.inf])
    expected, _ = np.histogram(-scores.astype(np.float64), mirrored)
    assert plus(histogram, scores).counts == tuple(expected[::-1].tolist())


def test_the_sum_is_that_of_the_scores_and_batches_add_up():
    scores = np.random.default_rng(1).normal(-15, 1, 5000).astype(np.float32)
    whole, parts = plus(empty(CALIBRATION), scores), empty(CALIBRATION)
    for start in range(0, 5000, 700):
        parts = plus(parts, scores[start : start + 700])
    assert parts.counts == whole.counts
    assert sum(whole.counts) == 5000
    assert parts.sum == pytest.approx(whole.sum) == pytest.approx(math.fsum(scores.tolist()))


def test_an_edge_belongs_to_the_bucket_below_it():
    histogram = ScoreHistogram((-2.0, 0.0, 1.5), (0, 0, 0, 0), 0.0)
    assert plus(histogram, np.array([-2.0, 0.0, 1.5])).counts == (1, 1, 1, 0)
    assert plus(histogram, np.nextafter([-2.0, 0.0, 1.5], 9)).counts == (0, 1, 1, 1)


def test_nan_is_the_strangest_score_and_spoils_no_sum():
    counted = plus(empty(CALIBRATION), np.array([np.nan, -np.inf, np.inf, -14.5], np.float32))
    assert (counted.counts[0], counted.counts[-1], sum(counted.counts)) == (2, 1, 4)
    assert counted.sum == -14.5


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=300),
    st.sampled_from([1e-6, 1.0, 1e6]),
)
@settings(max_examples=200, deadline=None)
def test_the_buckets_reach_around_any_calibration_scores(scores, scale):
    calibration = gate.summarise([score * scale for score in scores])
    edges = np.array(bucket_edges(calibration))
    low, high = np.quantile(calibration.scores, [0.01, 0.99], method="inverted_cdf")
    assert np.all(np.diff(edges) > 0)
    steps = np.diff(edges[-NUM_STEPS - 1 :])
    assert steps == pytest.approx(np.full(NUM_STEPS, steps[0]), rel=0.02)
    assert edges[len(FAR_BELOW)] < low <= high < edges[-1]


def test_scores_far_outside_are_told_apart():
    """Twice as far below the calibration scores is another bucket, until 16 widths below."""
    low, high = np.quantile(CALIBRATION.scores, [0.01, 0.99])
    strange = np.array([low - widths * (high - low) for widths in (1.5, 3, 6, 12, 24)])
    assert sorted(plus(empty(CALIBRATION), strange).counts)[-5:] == [1] * 5


def test_one_odd_calibration_score_does_not_stretch_the_buckets():
    odd = gate.summarise([*CALIBRATION.scores[1:], -1e6])
    assert bucket_edges(odd)[-1] - bucket_edges(odd)[0] == pytest.approx(
        bucket_edges(CALIBRATION)[-1] - bucket_edges(CALIBRATION)[0], rel=0.05
    )


def test_counts_of_other_buckets_or_damaged_ones_are_not_continued():
    new = empty(CALIBRATION)
    counted = plus(new, np.array([-14.5]))
    assert continued(new, counted) == counted
    for wrong in (
        None,
        empty(gate.summarise([1.0, 2.0])),
        ScoreHistogram(new.edges, (1,), 0.0),
        ScoreHistogram(new.edges, (-1, *new.counts[1:]), 0.0),
        ScoreHistogram(new.edges, new.counts, math.nan),
    ):
        assert continued(new, wrong) == new
