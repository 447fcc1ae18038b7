import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from service import gate
from service.bundle import CalibrationScores
from service.errors import InvalidParameter, UnknownOperatingPoint
from service.gate import Verdict
from tests import tiny


def scores(n: int, seed: int = 0) -> list[float]:
    return np.random.default_rng(seed).normal(size=n).tolist()


def test_a_score_at_the_threshold_is_accepted_and_nan_is_rejected():
    assert gate.decide(1.0, 1.0) is Verdict.ACCEPT
    assert gate.decide(math.nextafter(1.0, 0.0), 1.0) is Verdict.REJECT
    assert gate.decide(math.nan, -math.inf) is Verdict.REJECT


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
        assert (gate.decide(score, point.threshold) is Verdict.REJECT) == (p <= alpha)


@pytest.mark.parametrize("n", [20, 199, 5000])
def test_the_conformal_promise_holds_on_average_over_calibration_sets(n):
    """The share of familiar images rejected at alpha is at most alpha, within three standard errors."""
    random, draws, fresh = np.random.default_rng(n), 400, 200
    for name in ("accept90", "accept95"):
        rejected = 0
        for _ in range(draws):
            calibration = gate.summarise(random.gumbel(size=n).tolist())
            threshold = gate.choose(name, _Manifest(calibration)).threshold
            rejected += int((random.gumbel(size=fresh) < threshold).sum())
        alpha = float(gate.alpha_of(name))
        # images that share a calibration set go together, so its own spread is added to the binomial one
        variance = alpha * (1 - alpha) * (1 / (draws * fresh) + 1 / (draws * (n + 2)))
        assert rejected / (draws * fresh) <= alpha + 3 * math.sqrt(variance)
        assert rejected / (draws * fresh) >= alpha - 1 / (n + 1) - 3 * math.sqrt(variance)  # and is not vacuous


class _Manifest:
    operating_points = ()

    def __init__(self, calibration):
        self.calibration = calibration


def test_the_bound_of_one_calibration_set_agrees_with_the_beta_quantile():
    for rank, n in [(1, 20), (39, 1000), (50, 999), (250, 5000), (90, 100)]:
        assert gate.rejected_share_bound(rank, n) == pytest.approx(stats.beta.ppf(0.95, rank, n + 1 - rank), abs=1e-9)
    assert gate.rejected_share_bound(39, 1000) <= 0.05 < gate.rejected_share_bound(40, 1000)


@given(st.data(), st.integers(1, 3000), st.floats(0.9, 0.999999))
@settings(max_examples=200, deadline=None)
def test_the_bound_is_the_quantile_of_the_beta_distribution(data, n, confidence):
    rank = data.draw(st.integers(1, n))
    expected = stats.beta.ppf(confidence, rank, n + 1 - rank)
    assert gate.rejected_share_bound(rank, n, confidence) == pytest.approx(expected, rel=1e-9)


def test_the_bound_is_exact_for_a_million_images_too():
    expected = stats.beta.ppf(0.9999, 750_000, 250_001)
    assert gate.rejected_share_bound(750_000, 1_000_000, 0.9999) == pytest.approx(expected, rel=1e-9)


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


def test_the_gate_is_chosen_by_name_by_percent_or_by_score():
    manifest = tiny.manifest()
    point = manifest.operating_points[1]
    assert gate.choose("accept95", manifest) == gate.Gate(point.threshold, "accept95")
    assert gate.choose("accept50", manifest).threshold == sorted(manifest.calibration.scores)[499]
    assert gate.choose("-1.5", manifest) == gate.Gate(-1.5, None)


@pytest.mark.parametrize("wrong", ["accept", "accept0", "accept100", "accept-5", "acceptable", "accept99.99999"])
def test_an_unknown_operating_point_is_refused_with_those_that_exist(wrong):
    with pytest.raises(UnknownOperatingPoint, match="published: accept90, accept95, accept99"):
        gate.choose(wrong, tiny.manifest())


@pytest.mark.parametrize("wrong", ["nan", "inf", "-inf", "", "high"])
def test_a_threshold_that_would_decide_blindly_is_refused(wrong):
    with pytest.raises(InvalidParameter, match="finite score"):
        gate.choose(wrong, tiny.manifest())
