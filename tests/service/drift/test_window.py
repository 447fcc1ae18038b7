import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from scipy.special import rel_entr

from portcullis.bundle import gate
from portcullis.bundle.gate import P_VALUE_BUCKETS
from portcullis.drift import window as drift
from portcullis.drift.evidence import Detector
from portcullis.drift.rings import ACCEPTED, STRANGER, UNSURE
from portcullis.drift.window import Window, measure
from tests import tiny
from tests.service.drift_reports import empty_report

finite = st.floats(-100, 100, width=32)


def window_of(scores, class_indices=None, threshold=-np.inf) -> Window:
    scores = np.asarray(scores, dtype=np.float32)
    calibration = tiny.manifest().calibration
    p_values = np.array([gate.p_value(float(score), calibration) for score in scores], dtype=np.float32)
    classes = np.zeros(len(scores)) if class_indices is None else np.asarray(class_indices)
    return Window(scores, p_values, classes.astype(np.uint16), (~(scores >= threshold)).astype(np.uint8))


def test_the_buckets_fill_the_unit_interval():
    assert list(P_VALUE_BUCKETS) == sorted(set(P_VALUE_BUCKETS))
    assert P_VALUE_BUCKETS[0] > 0
    assert P_VALUE_BUCKETS[-1] == 1


@given(hnp.arrays(np.float64, st.integers(1, 300), elements=st.floats(0.001, 1)))
@settings(max_examples=100, deadline=None)
def test_p_value_shares_agree_with_scipy(p_values):
    edges = np.nextafter(np.float32([-1, *P_VALUE_BUCKETS]), np.float32(2))  # scipy's bins are closed below: (a, b]
    expected = stats.binned_statistic(np.float32(p_values), None, "count", bins=edges).statistic / len(p_values)
    np.testing.assert_allclose(drift.p_value_shares(p_values), expected)


@given(hnp.arrays(np.float64, st.integers(200, 400), elements=st.floats(0.001, 1), fill=st.nothing()))
@settings(max_examples=100, deadline=None)
def test_psi_is_the_divergence_both_ways_of_scipy(p_values):
    """PSI = KL(window ‖ reference) + KL(reference ‖ window); scipy's rel_entr sums to each."""
    shares = drift.p_value_shares(p_values)
    observed, expected = np.maximum(shares, 1e-4), np.diff([0, *P_VALUE_BUCKETS])
    divergence = rel_entr(observed, expected).sum() + rel_entr(expected, observed).sum()
    assert drift.psi(shares) == pytest.approx(divergence)


def test_psi_by_hand():
    widths = np.diff([0, *P_VALUE_BUCKETS])
    assert drift.psi(tuple(widths)) == pytest.approx(0, abs=1e-12)
    moved = widths.copy()
    moved[0], moved[-5] = 0.11, 0.0  # the bucket (0.8, 0.9] has moved to the smallest p-values
    by_hand = 0.1 * np.log(11) + (1e-4 - 0.1) * np.log(1e-3)
    assert drift.psi(tuple(moved)) == pytest.approx(by_hand) == pytest.approx(0.9299, abs=1e-4)


def test_psi_of_undrifted_traffic_is_small_and_of_drifted_traffic_is_not():
    random = np.random.default_rng(0)
    assert drift.psi(drift.p_value_shares(random.random(10_000))) < 0.01
    assert drift.psi(drift.p_value_shares(random.random(10_000) ** 2)) > 0.25


def test_an_edge_belongs_to_the_bucket_below_it_in_the_rings_precision_too():
    on_edges = np.array(P_VALUE_BUCKETS)
    for precision in (np.float32, np.float64):
        assert drift.p_value_shares(on_edges.astype(precision)) == (1 / len(on_edges),) * len(on_edges)


@given(hnp.arrays(np.float32, st.integers(1, 200), elements=finite), st.lists(finite, min_size=2, max_size=200))
@settings(max_examples=200, deadline=None)
def test_ks_agrees_with_scipy(scores, calibration):
    expected = stats.ks_2samp(scores.astype(float), calibration, method="asymp").statistic
    assert drift.ks_distance(scores, gate.summarise(calibration)) == pytest.approx(expected, abs=1e-12)


def test_ks_from_kept_ranks_is_within_the_gap_between_them():
    random = np.random.default_rng(1)
    calibration, scores = random.normal(size=5000), random.normal(0.3, size=2000)
    kept = drift.ks_distance(scores, gate.summarise(calibration.tolist(), max_kept=500))
    assert kept == pytest.approx(stats.ks_2samp(scores, calibration).statistic, abs=1 / 499)


def test_nan_is_the_strangest_score():
    calibration = gate.summarise([1.0, 2.0, 3.0, 4.0])
    assert drift.ks_distance(np.array([np.nan, np.nan]), calibration) == 1.0
    assert drift.score_quantiles(np.array([np.nan, 5.0]))[0.5] == 5.0
    assert drift.score_quantiles(np.array([np.nan])) == {}


@given(st.integers(1, 10_000), st.data())
@settings(max_examples=200, deadline=None)
def test_the_reject_interval_agrees_with_scipy(trials, data):
    successes = data.draw(st.integers(0, trials))
    expected = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    assert drift.wilson_interval(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_class_mix_and_its_distance_by_hand():
    mix = drift.class_mix(np.array([0, 0, 0, 2], dtype=np.uint16), 3)
    assert mix == (0.75, 0.0, 0.25)
    assert drift.total_variation(mix, (0.25, 0.25, 0.5)) == 0.5


def test_quantiles_are_scores_of_the_window():
    scores = np.random.default_rng(2).normal(size=999).astype(np.float32)
    quantiles = drift.score_quantiles(scores)
    assert list(quantiles) == list(drift.SCORE_QUANTILES)
    assert set(quantiles.values()) <= set(scores.tolist())
    assert quantiles[0.5] == np.median(scores)


def test_a_report_says_everything_about_the_window_and_the_evidence():
    manifest = tiny.manifest()
    threshold = manifest.calibration.scores[len(manifest.calibration.scores) // 2]
    window = window_of(manifest.calibration.scores, threshold=threshold)
    detector = Detector(manifest.calibration, 1e6)
    detector.update(np.full(500, 1 / (manifest.calibration.num_images + 1)))
    report = measure(window, manifest, manifest.calibration, detector)
    assert report.num_images == manifest.calibration.num_images
    assert report.ks == pytest.approx(0, abs=1e-6)
    assert report.psi == drift.psi(report.p_value_shares)
    assert report.reject_ratio == np.mean(np.float32(manifest.calibration.scores) < threshold)
    num_rejected = int(np.count_nonzero(window.outcomes))
    assert report.reject_ratio_interval == drift.wilson_interval(num_rejected, report.num_images)
    assert report.unsure_ratio == 0
    assert report.class_mix == (1.0, 0.0, 0.0)
    assert report.class_mix_reference == manifest.class_mix
    assert report.class_mix_distance == pytest.approx(1 - manifest.class_mix[0], abs=1e-3)
    assert (report.alarm, report.num_alarms_since_reset, report.num_images_since_reset) == (True, 1, 500)
    assert report.evidence_log10 >= 6 == np.log10(report.threshold)


def test_both_rules_count_as_rejects_and_unsure_is_told_apart():
    manifest = tiny.manifest()
    outcomes = np.array([ACCEPTED, STRANGER, UNSURE, UNSURE], np.uint8)
    window = dataclasses.replace(window_of([0.0] * 4), outcomes=outcomes)
    report = measure(window, manifest, manifest.calibration, Detector(manifest.calibration, 1e6))
    assert (report.reject_ratio, report.unsure_ratio) == (0.75, 0.5)


def test_an_empty_window_makes_a_report_too():
    manifest = tiny.manifest()
    report = measure(window_of([]), manifest, manifest.calibration, Detector(manifest.calibration, 1e6))
    assert report == empty_report(manifest.class_mix)


def test_a_report_is_json_even_of_a_window_of_nan():
    manifest = tiny.manifest()
    window = window_of([np.nan] * 3)
    json.dumps(
        dataclasses.asdict(measure(window, manifest, manifest.calibration, Detector(manifest.calibration, 1e6))),
        allow_nan=False,
    )
