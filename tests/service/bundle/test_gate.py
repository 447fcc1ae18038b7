import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from portcullis.bundle import gate
from portcullis.bundle.binomial import rejected_share_bound
from portcullis.bundle.gate import Reason, Verdict
from portcullis.bundle.manifest import CalibrationScores
from portcullis.errors import UnknownOperatingPoint


def scores(n: int, seed: int = 0) -> list[float]:
    return np.random.default_rng(seed).normal(size=n).tolist()


def row(score: float, class_index: int = 0, probability: float = 1.0, parts: tuple[float, ...] = ()) -> gate.Row:
    return gate.Row(class_index, probability, score, list(parts))


def bare(threshold: float, **rest) -> gate.Gate:
    """A gate on the graph's own score, whatever it was calibrated on."""
    calibration = CalibrationScores(num_images=1, scores=(0.0,))
    return gate.Gate("test", "score", None, calibration, threshold, **rest)


def test_a_score_at_the_threshold_is_accepted_and_nan_is_rejected_as_a_stranger():
    assert gate.decide(row(1.0), bare(1.0)) == (Verdict.ACCEPT, None)
    assert gate.decide(row(math.nextafter(1.0, 0.0)), bare(1.0)) == (Verdict.REJECT, Reason.STRANGER)
    assert gate.decide(row(math.nan), bare(-math.inf)) == (Verdict.REJECT, Reason.STRANGER)


def test_a_familiar_image_with_too_low_a_probability_is_unsure_and_a_stranger_is_a_stranger_first():
    careful = bare(1.0, min_probability=0.9)
    assert gate.decide(row(1.0, probability=0.9), careful) == (Verdict.ACCEPT, None)
    assert gate.decide(row(1.0, probability=0.89), careful) == (Verdict.REJECT, Reason.UNSURE)
    assert gate.decide(row(1.0, probability=math.nan), careful) == (Verdict.REJECT, Reason.UNSURE)
    assert gate.decide(row(0.5, probability=0.1), careful) == (Verdict.REJECT, Reason.STRANGER)


def test_a_gate_by_class_asks_the_predicted_class_and_another_score_its_column():
    scores = [CalibrationScores(num_images=3, scores=values) for values in ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))]
    classes = tuple(gate.ClassGate(calibration.scores[0], calibration) for calibration in scores)
    chosen = replace(bare(0.0, by_class=classes), column=1)
    first, second = row(9.0, 0, parts=(9.0, 3.0)), row(9.0, 1, parts=(9.0, 3.0))
    assert gate.decide(first, chosen) == (Verdict.ACCEPT, None)
    assert gate.decide(second, chosen) == (Verdict.REJECT, Reason.STRANGER)
    assert (chosen.p_value(first), chosen.p_value(second)) == (1.0, 0.25)


def test_p_value_by_hand():
    calibration = CalibrationScores(num_images=4, scores=(1.0, 2.0, 2.0, 3.0))
    assert [gate.p_value(s, calibration) for s in (0.5, 1.0, 2.0, 3.0, math.nan)] == [0.2, 0.4, 0.8, 1.0, 0.2]


@pytest.mark.parametrize("name", ["accept90", "accept95", "accept99", "accept97.5"])
@pytest.mark.parametrize("n", [199, 999, 5000])
def test_threshold_and_p_value_say_the_same(name, n):
    calibration = gate.summarise([round(s, 1) for s in scores(n)])  # rounded: many ties
    point = gate.operating_point(name, calibration)
    alpha = gate.alpha_of(name)
    for score in np.linspace(-4, 4, 801):
        p = Fraction(1 + gate.count_at_or_below(score, calibration), n + 1)
        assert (gate.decide(row(score), bare(point.threshold))[0] is Verdict.REJECT) == (p <= alpha)


@pytest.mark.parametrize("n", [20, 199, 5000])
def test_the_conformal_promise_holds_on_average_over_calibration_sets(n):
    """The share of familiar images rejected at alpha is at most alpha, within three standard errors."""
    random, draws, fresh = np.random.default_rng(n), 400, 200
    for name in ("accept90", "accept95"):
        rejected = 0
        for _ in range(draws):
            calibration = gate.summarise(random.gumbel(size=n).tolist())
            threshold = gate.operating_point(name, calibration).threshold
            rejected += int((random.gumbel(size=fresh) < threshold).sum())
        alpha = float(gate.alpha_of(name))
        # images that share a calibration set go together, so its own spread is added to the binomial one
        variance = alpha * (1 - alpha) * (1 / (draws * fresh) + 1 / (draws * (n + 2)))
        assert rejected / (draws * fresh) <= alpha + 3 * math.sqrt(variance)
        assert rejected / (draws * fresh) >= alpha - 1 / (n + 1) - 3 * math.sqrt(variance)  # and is not vacuous


def test_the_bound_of_one_calibration_set_agrees_with_the_beta_quantile():
    for rank, n in [(1, 20), (39, 1000), (50, 999), (250, 5000), (90, 100)]:
        assert rejected_share_bound(rank, n) == pytest.approx(stats.beta.ppf(0.95, rank, n + 1 - rank), abs=1e-9)
    assert rejected_share_bound(39, 1000) <= 0.05 < rejected_share_bound(40, 1000)


@given(st.data(), st.integers(1, 3000), st.floats(0.9, 0.999999))
@settings(max_examples=200, deadline=None)
def test_the_bound_is_the_quantile_of_the_beta_distribution(data, n, confidence):
    rank = data.draw(st.integers(1, n))
    expected = stats.beta.ppf(confidence, rank, n + 1 - rank)
    assert rejected_share_bound(rank, n, confidence) == pytest.approx(expected, rel=1e-9)


def test_the_bound_is_exact_for_a_million_images_too():
    expected = stats.beta.ppf(0.9999, 750_000, 250_001)
    assert rejected_share_bound(750_000, 1_000_000, 0.9999) == pytest.approx(expected, rel=1e-9)


def test_a_promise_that_the_calibration_set_cannot_keep_is_not_published():
    calibration = gate.summarise(scores(98))
    assert [point.name for point in gate.operating_points(calibration)] == ["accept90", "accept95"]
    with pytest.raises(UnknownOperatingPoint, match=r"needs at least 99 calibration images.*has 98"):
        gate.operating_point("accept99", calibration)
    assert "accept99" in [point.name for point in gate.operating_points(gate.summarise(scores(99)))]


def test_alpha_is_exact_where_floats_are_not():
    assert gate.alpha_of("accept95") == Fraction(1, 20)
    calibration = gate.summarise(scores(99_999))
    exact = sorted(scores(99_999))
    assert gate.operating_point("accept99.9", gate.summarise(exact, max_kept=10**6)).threshold == exact[99]
    assert calibration.ranks is not None


def test_a_quantile_grid_never_breaks_the_promise():
    everything = scores(30_000, seed=3)
    whole, grid = gate.summarise(everything, max_kept=10**6), gate.summarise(everything, max_kept=500)
    assert len(grid.scores) == 500
    assert grid.num_images == 30_000
    for score in np.linspace(-5, 5, 501):
        assert 0 <= gate.p_value(score, grid) - gate.p_value(score, whole) <= 2 / 499
    assert gate.operating_point("accept95", grid).threshold <= gate.operating_point("accept95", whole).threshold
