import json
import math

import numpy as np
import pytest
from scipy import stats

from bench import drift_streams as streams
from bench.drift_scores import SCORES
from portcullis.bundle import gate
from portcullis.bundle.manifest import CalibrationScores
from portcullis.drift import evidence
from portcullis.drift.evidence import Detector


def detector_of(n: int = 1000, threshold: float = 1e4) -> Detector:
    return streams.new_detector(np.arange(float(n)), threshold)


def factors_by_definition(p_value: float, detector: Detector) -> list[float]:
    """e of every bet as the likelihood ratio of METHODS: a share of u + f (1 - u) against one of u."""
    is_event = [p_value < edge for edge in detector.events.low] + [p_value > edge for edge in detector.events.high]
    factors = []
    for stake in evidence.STAKES:
        for event, u in zip(is_event, detector.events.bounds, strict=True):
            share = u + stake * (1 - u)
            factors.append(share / u if event else (1 - share) / (1 - u))
    return factors


@pytest.mark.parametrize("chunk", [1, 7, 128, 129, 1000])
def test_the_evidence_is_the_plain_recursion_whatever_the_chunks(chunk):
    p_values = np.float32(np.random.default_rng(0).beta(0.7, 1.0, size=1000))
    detector = detector_of(threshold=1e15)
    plain = [0.0] * len(factors_by_definition(0.5, detector))
    for start in range(0, len(p_values), chunk):
        detector.update(p_values[start : start + chunk])
        for p in p_values[start : start + chunk]:
            plain = [(1 + r) * e for r, e in zip(plain, factors_by_definition(p, detector), strict=True)]
        assert detector.evidence_log10 == pytest.approx(math.log10(max(np.mean(plain), 1)), abs=1e-9)
    assert detector.num_images == 1000
    assert detector.evidence_log10 > 3  # the comparison was not of nothing with nothing


def test_the_mean_over_bets_is_the_sum_over_start_times_of_the_mixture():
    p_values = np.random.default_rng(1).random(40) ** 2
    detector = detector_of()
    detector.update(p_values)
    factors = np.array([factors_by_definition(np.float32(p), detector) for p in p_values])
    mixtures = [factors[start:].prod(axis=0).mean() for start in range(len(p_values))]  # one e-process a start
    assert detector.evidence_log10 == pytest.approx(math.log10(sum(mixtures)))


@pytest.mark.parametrize("n", [1, 2, 19, 100, 1000])
def test_no_bet_gains_while_the_shares_are_within_their_bounds(n):
    """Fair at the bound itself, and losing below it."""
    detector = detector_of(n)
    bounds = np.tile(detector.events.bounds, len(evidence.STAKES))
    hit = detector._factors.max(axis=0)
    miss = detector._factors.min(axis=0)
    assert np.all(hit > miss)
    np.testing.assert_allclose(bounds * hit + (1 - bounds) * miss, 1, rtol=1e-12)


def continuous(random, size):
    return random.gumbel(size=size)


def tied(random, size):
    return np.floor(random.exponential(3, size=size))  # a handful of values


@pytest.mark.parametrize("max_kept", [10_000, 40], ids=["every score kept", "40 ranks kept"])
@pytest.mark.parametrize("draw", [continuous, tied])
def test_the_bounds_hold_at_once_with_their_confidence_for_any_scores(draw, max_kept):
    random = np.random.default_rng(7)
    population = np.sort(draw(random, 20_000))
    num_sets, num_exceeded = 400, 0
    for _ in range(num_sets):
        calibration = gate.summarise(random.choice(population, 500).tolist(), max_kept)
        events = Detector(calibration, 1e4).events
        values = [gate.p_value(score, calibration) for score in calibration.scores]
        of_p = np.array([1 / 501, *values])  # p-value of a score by the number of kept scores at or below it
        if calibration.ranks is not None:
            of_p[0] = gate.p_value(-math.inf, calibration)
        p_values = of_p[np.searchsorted(calibration.scores, population, side="right")].astype(np.float32)
        shares = [(p_values < edge).mean() for edge in events.low] + [(p_values > edge).mean() for edge in events.high]
        num_exceeded += bool(np.any(np.array(shares) > events.bounds))
    assert num_exceeded <= stats.binom.ppf(0.999, num_sets, 1 - evidence.CONFIDENCE)


def test_with_a_threshold_of_10_000_undrifted_streams_run_for_at_least_so_many_images():
    """200 streams, each against a calibration set of its own; one without an alarm counts as the 12,000 watched."""
    random = np.random.default_rng(11)
    runs = [streams.images_to_false_alarm(random, streams.normal_scores, 1000, 1e4, 12_000) for _ in range(200)]
    assert np.mean(runs) >= 10_000


def test_even_at_the_edge_of_the_null_the_mean_run_is_at_least_the_threshold():
    """Every share as large as permitted: here the bets are fair, and a factor of two in the evidence would show."""
    random, runs = np.random.default_rng(12), []
    for _ in range(200):
        detector = detector_of(threshold=1e3)
        while detector.alarm_raised_at is None:
            detector.update(streams.edge_of_the_null(random, detector, 2000))
        runs.append(detector.alarm_raised_at)
    assert 1e3 <= np.mean(runs) <= 1e4


def test_many_undrifted_images_do_not_drown_a_small_calibration_set_in_alarms():
    """The bench runs 10 million a set (docs/drift.md); here 12 sets with 40,000 each, at A = 10,000."""
    random = np.random.default_rng(13)
    num_alarms = [streams.num_false_alarms(random, random.random(1000), 1e4, 40_000) for _ in range(12)]
    assert sum(num_alarms) <= 12 * 40_000 / 1e4
    assert max(num_alarms) <= 2 * 40_000 / 1e4


@pytest.mark.parametrize("n", [1000, 5000])
def test_a_stream_that_turns_a_fifth_outside_fires_within_300_images(n):
    random = np.random.default_rng(14)
    delays = [streams.images_to_alarm(random, streams.normal_scores, n, 1e4, outside_share=0.2) for _ in range(400)]
    assert np.mean(np.array(delays) <= 300) >= 0.95


@pytest.fixture(scope="module")
def real() -> streams.RealScores:
    """The shipped bundle's scores of images that it has never seen; docs/drift.md says how they were computed."""
    return streams.load_scores(SCORES)


def clear_outside(real: streams.RealScores) -> dict[str, streams.Scores]:
    """The outside sets that the score tells from inside with a TNR@TPR95 of 60 % or more."""
    return {name: scores for name, scores in real.outside.items() if streams.tnr_at_tpr95(real.inside, scores) >= 0.6}


@pytest.mark.parametrize("of_bundle", [False, True], ids=["1000 test images", "the bundle's own"])
def test_real_scores_fire_within_300_images_when_a_fifth_turns_outside(real, of_bundle):
    random = np.random.default_rng(15)
    assert clear_outside(real)
    for outside in clear_outside(real).values():
        source, calibration = streams.drawn_from(real.inside, outside), real.calibration if of_bundle else 1000
        delays = [streams.images_to_alarm(random, source, calibration, 1e4, outside_share=0.2) for _ in range(100)]
        assert np.mean(np.array(delays) <= 300) >= 0.95


def test_undrifted_streams_of_real_scores_run_for_at_least_10_000_images(real):
    random, source = np.random.default_rng(19), streams.resampled_from(real.inside)
    runs = [streams.images_to_false_alarm(random, source, 1000, 1e4, 12_000) for _ in range(200)]
    assert np.mean(runs) >= 10_000


def test_the_real_test_images_raise_no_alarm_against_the_calibration_scores_of_the_bundle(real):
    """In the order in which they were scored, at the default of a million images between false alarms."""
    detector = streams.new_detector(real.calibration, 1e6)
    detector.update(streams.p_values(real.inside, real.calibration))
    assert (detector.num_images, detector.num_alarms) == (len(real.inside), 0)


def test_a_camera_frozen_on_any_real_image_fires(real):
    random, n = np.random.default_rng(20), len(real.calibration)
    for scores in (real.inside, *real.outside.values()):
        frozen = streams.p_values(random.choice(scores, 40, replace=False), real.calibration)
        assert max(streams.images_until_frozen_is_seen(p, n, 1e6) for p in frozen) <= 150


@pytest.mark.parametrize(("n", "num_images"), [(20, 700), (100, 250), (1000, 150)])
def test_a_frozen_camera_fires_whatever_its_p_value(n, num_images):
    delays = [streams.images_until_frozen_is_seen(k / (n + 1), n, 1e6) for k in range(1, n + 2, max(1, n // 100))]
    assert max(delays) <= num_images


def test_evidence_never_overflows_and_the_alarm_ends_after_its_cause():
    random = np.random.default_rng(16)
    calibration = random.normal(size=1000)
    detector = streams.new_detector(calibration, 1e6)
    detector.update(np.full(100_000, 1 / 1001))
    assert detector.alarm
    assert detector.num_alarms == 1
    assert detector.alarm_raised_at < 10
    assert 6 <= detector.evidence_log10 <= 12
    detector.update(streams.p_values(random.normal(size=3000), calibration))
    assert not detector.alarm
    assert detector.num_alarms == 1


def test_an_alarm_counts_even_where_it_ends_within_the_same_chunk():
    detector = detector_of(threshold=1e3)
    quiet = np.random.default_rng(17).random(3000)
    detector.update(np.concatenate([np.full(20, 0.001), quiet, np.full(20, 0.001), quiet[::-1]]))
    assert detector.num_alarms == 2
    assert not detector.alarm
    assert 3020 < detector.alarm_raised_at <= 3040


def test_nan_is_the_strangest_p_value():
    nan, smallest = detector_of(), detector_of()
    nan.update(np.full(50, np.nan))
    smallest.update(np.full(50, 1 / 1001))
    assert nan.evidence_log10 == smallest.evidence_log10 > 4


def test_rounding_to_the_rings_float32_makes_no_event():
    """p-values a hair from an edge: what is an event in float32 is one in exact arithmetic too."""
    n, detector = 1000, detector_of(1000)
    ranks = [math.floor(level * (n + 1)) for level in evidence.LEVELS]
    low, high = [(1 + k) / (n + 1) for k in ranks], sorted((n + 2 - k) / (n + 1) for k in ranks)
    for edge in low + high:
        for p in edge + np.array([-1e-7, -1e-8, -1e-12, 0, 1e-12, 1e-8, 1e-7]):
            not_low, is_high = divmod(int(detector.events.outcomes(np.array([p]))[0]), len(high) + 1)
            assert len(low) - not_low <= sum(p < e for e in low)
            assert is_high <= sum(p > e for e in high)


def test_a_restart_does_not_reset_it():
    random = np.random.default_rng(18)
    p_values = random.random(5000) ** 1.3
    whole, restarted = detector_of(), detector_of()
    for start in range(0, 5000, 640):
        whole.update(p_values[start : start + 640])
        state = json.loads(json.dumps(restarted.to_dict(), allow_nan=False))
        restarted = Detector.from_dict(state, _calibration_of(1000), 1e4)
        restarted.update(p_values[start : start + 640])
    assert restarted.to_dict() == whole.to_dict()
    assert whole.num_alarms > 0


def test_a_swap_resets_it():
    detector, fresh = detector_of(), detector_of()
    detector.update(np.full(100, 0.001))
    assert detector.alarm
    with pytest.raises(ValueError, match="same calibration set"):
        Detector.from_dict(detector.to_dict(), _calibration_of(999), 1e4)
    detector.reset()
    assert detector.to_dict() == fresh.to_dict()
    assert detector.evidence_log10 == 0


@pytest.mark.parametrize(
    "damage",
    [
        {"evidence": [1.0]},
        {"evidence": [-1.0] * 28},
        {"evidence": [math.inf] * 28},
        {"evidence": "many"},
        {"num_images": None},
        {"num_images": "x"},
    ],
)
def test_a_damaged_state_is_refused(damage):
    state = detector_of().to_dict()
    with pytest.raises(ValueError):
        Detector.from_dict({**state, **damage}, _calibration_of(1000), 1e4)
    with pytest.raises(ValueError, match="to_dict"):
        lacking = {key: value for key, value in state.items() if key not in damage}
        Detector.from_dict(lacking, _calibration_of(1000), 1e4)


@pytest.mark.parametrize("threshold", [999, 0, -5, math.nan, math.inf, 1e16])
def test_a_threshold_that_means_nothing_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold"):
        detector_of(threshold=threshold)


def _calibration_of(n: int) -> CalibrationScores:
    return CalibrationScores(num_images=n, scores=tuple(map(float, range(n))))
