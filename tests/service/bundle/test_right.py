import math

import numpy as np
import pytest
from scipy import stats

from portcullis.bundle import binomial, right
from portcullis.bundle.right import Passing
from portcullis.errors import UnknownOperatingPoint

GRID = tuple(np.linspace(1, 0.5, 101).round(3).tolist())


def passing(tested: list[tuple[float, bool]]) -> Passing:
    return Passing([probability for probability, _ in tested], tested, len(tested))


def test_the_risk_of_a_name():
    assert [float(right.risk_of(name)) for name in ("right95", "right99", "right995", "right99.5", "right999")] == [
        0.05, 0.01, 0.005, 0.005, 0.001,
    ]  # fmt: skip
    for wrong in ("right", "right9", "right00", "right99999", "right100", "rightful", "right-5"):
        with pytest.raises(UnknownOperatingPoint, match="expected right<percent>"):
            right.risk_of(wrong)


def test_the_binomial_tail_and_the_least_number_of_trials_agree_with_scipy():
    for errors, trials, risk in [(0, 299, 0.01), (3, 1000, 0.01), (17, 4000, 0.01), (0, 59, 0.05)]:
        assert binomial.tail(errors, trials, risk) == pytest.approx(stats.binom.cdf(errors, trials, risk), rel=1e-9)
    assert (binomial.least_trials(0.01), binomial.least_trials(0.05)) == (299, 59)
    assert binomial.proves(0, 299, 0.01)
    assert not binomial.proves(0, 298, 0.01)
    assert not binomial.proves(10, 1000, 0.01)  # at the mean
    assert not binomial.proves(0, 0, 0.01)


def test_the_sequence_ends_with_the_first_failure_by_hand():
    """100 right answers at 0.94, then 3 wrong at 0.90, then many right ones that would pass if it went on."""
    tested = [(0.94, True)] * 100 + [(0.90, False)] * 3 + [(0.80, True)] * 1000
    assert not binomial.proves(3, 103, 0.05)
    assert binomial.proves(3, 1103, 0.05)
    point = right.right_point("right95", "accept95", passing(tested), (0.99, 0.94, 0.9, 0.8))
    assert (point.min_probability, point.coverage, point.gate) == (0.94, 100 / 1103, "accept95")
    assert (point.risk, point.confidence) == (0.05, 0.95)


def test_the_sequence_begins_where_calibrated_answers_are_right_often_enough():
    """At 0.99 there is nothing to count; right95 begins at 0.95, so that does not end the sequence."""
    tested = [(0.95, True)] * 200
    assert right.right_point("right95", "", passing(tested), (0.99, 0.95, 0.5)).min_probability == 0.5
    with pytest.raises(UnknownOperatingPoint, match="no candidate"):
        right.right_point("right95", "", passing(tested), (0.99,))


def test_a_promise_that_the_images_cannot_prove_is_refused_with_what_it_takes():
    with pytest.raises(UnknownOperatingPoint, match=r"at least 299 .* there are 298 with 0 wrong"):
        right.right_point("right99", "", passing([(0.995, True)] * 298), GRID)
    assert right.right_point("right99", "", passing([(0.995, True)] * 299), GRID).coverage == 1.0


@pytest.mark.parametrize(
    ("name", "n", "draws", "alpha"),
    [
        ("right95", 2000, 400, 0.0),
        ("right95", 2000, 400, 0.05),
        ("right95", 2000, 400, 0.3),
        ("right99", 6000, 150, 0.05),
    ],
)
def test_the_bound_fails_in_at_most_5_percent_of_draws(name, n, draws, alpha):
    """Probability p = 1 - 10 r u² and score s with u and s uniform on 0…1, wrong with probability (1 - p)(0.5 + s).

    The rule "s > t and p >= l" is then wrong with (1 - l)/3 · (1 + t/2), whatever draw chose t and l. Of the draws at
    most 5 % may give a rule that is wrong more often than promised, so their number is at most a Binomial(draws, 0.05).
    """
    random, risk = np.random.default_rng(7), float(right.risk_of(name))
    num_failed = num_proven = 0
    for _ in range(draws):
        probabilities, scores = 1 - 10 * risk * random.random(n) ** 2, random.random(n)
        is_right = random.random(n) >= (1 - probabilities) * (0.5 + scores)
        rank = math.floor(alpha * (n + 1))
        threshold = np.sort(scores)[rank - 1] if rank else 0.0
        above = scores > threshold
        tested = list(zip(probabilities[above].tolist(), is_right[above].tolist(), strict=True))
        try:
            least = right.right_point(name, "", passing(tested), GRID).min_probability
        except UnknownOperatingPoint:
            continue
        num_proven += 1
        num_failed += (1 - least) / 3 * (1 + threshold / 2) > risk
    assert num_proven >= 0.9 * draws  # not by refusing
    assert num_failed <= stats.binom.ppf(0.999, draws, 0.05)
    assert num_failed >= 1  # nor by giving away what could be proven
