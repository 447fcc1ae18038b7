"""Streams of scores, undrifted and drifted, and how a detector fares on them. For bench.drift and the tests."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from portcullis.bundle.manifest import CalibrationScores
from portcullis.drift.evidence import Detector

SHIFT = 1.6449 + 0.2533  # of one normal score against another, in deviations: TNR@TPR95 is 0.6

Scores = NDArray[np.float64]
Source = Callable[[Generator, int, int], tuple[Scores, Scores]]
"""(random, num_inside, num_outside) → fresh scores of inside and of outside images, independent draws."""


def normal_scores(random: Generator, num_inside: int, num_outside: int) -> tuple[Scores, Scores]:
    """Two normal distributions, as far apart as a TNR@TPR95 of 60 % says."""
    return random.normal(size=num_inside), random.normal(size=num_outside) - SHIFT


class RealScores(NamedTuple):
    """Scores of images that a bundle was neither trained nor calibrated on, and its own calibration scores."""

    bundle: str
    calibration: Scores
    inside: Scores
    outside: dict[str, Scores]


def load_scores(file: Path) -> RealScores:
    """What bench.drift_scores wrote."""
    with np.load(file) as content:
        arrays = {name: content[name].astype(np.float64) for name in content if name != "bundle"}
        bundle = str(content["bundle"])
    outside = {name.removeprefix("outside_"): arrays[name] for name in arrays if name.startswith("outside_")}
    return RealScores(bundle, arrays["calibration"], arrays["inside"], outside)


def resampled_from(inside: Scores) -> Source:
    """Independent draws with replacement: the real scores are taken for all there are, so a stream may be long."""
    return lambda random, num_inside, num_outside: (random.choice(inside, num_inside), np.empty(num_outside))


def drawn_from(inside: Scores, outside: Scores) -> Source:
    """Draws from the scores of real images, of inside ones each at most once: as fresh as new ones."""
    needed = 1000 + 500 + 3000
    if len(inside) < needed:
        raise ValueError(f"expected the scores of at least {needed} inside images, got {len(inside)}")

    def draw(random: Generator, num_inside: int, num_outside: int) -> tuple[Scores, Scores]:
        return random.choice(inside, num_inside, replace=False), random.choice(outside, num_outside, replace=True)

    return draw


def tnr_at_tpr95(inside: Scores, outside: Scores) -> float:
    return float((outside < np.quantile(inside, 0.05, method="lower")).mean())


def new_detector(calibration: Scores, threshold: float) -> Detector:
    ordered = tuple(np.sort(calibration).tolist())
    return Detector(CalibrationScores(num_images=len(ordered), scores=ordered), threshold)


def p_values(scores: Scores, calibration: Scores) -> Scores:
    """As gate.p_value, many at once."""
    return (1 + np.searchsorted(np.sort(calibration), scores, side="right")) / (len(calibration) + 1)


def images_to_false_alarm(random: Generator, source: Source, n: int, threshold: float, cap: int) -> int:
    """Length of an undrifted stream against a calibration set of its own; `cap` where there is no alarm until then."""
    inside, _ = source(random, n + cap, 0)
    detector = new_detector(inside[:n], threshold)
    for start in range(0, cap, 5000):
        detector.update(p_values(inside[n + start : n + start + 5000], inside[:n]))
        if detector.alarm_raised_at is not None:
            return detector.alarm_raised_at
    return cap


def images_to_alarm(
    random: Generator,
    source: Source,
    calibration: int | Scores,
    threshold: float,
    outside_share: float,
    num_before: int = 500,
) -> int:
    """Images from the moment a stream turns until the alarm; 10,000 where there is none in 3000.

    The calibration scores are given, or so many are drawn anew.
    """
    is_outside = random.random(3000) < outside_share
    n = calibration if isinstance(calibration, int) else 0
    drawn, outside = source(random, n + num_before + int((~is_outside).sum()), int(is_outside.sum()))
    reference = drawn[:n] if isinstance(calibration, int) else calibration
    inside = drawn[n:]
    detector = new_detector(reference, threshold)
    detector.update(p_values(inside[:num_before], reference))
    if detector.alarm_raised_at is not None:  # a false alarm before the turn must not count as a find
        detector.reset()
    num_images, turned = detector.num_images, np.empty(len(is_outside))
    turned[is_outside], turned[~is_outside] = outside, inside[num_before:]
    for start in range(0, len(turned), 300):
        detector.update(p_values(turned[start : start + 300], reference))
        if detector.alarm_raised_at is not None:
            return detector.alarm_raised_at - num_images
    return 10_000


def num_false_alarms(random: Generator, calibration: Scores, threshold: float, num_images: int) -> int:
    """Alarms on undrifted images with uniform scores, the detector reset after each: one that stays on is not one."""
    detector, num_alarms = new_detector(calibration, threshold), 0
    for _ in range(num_images // 1000):
        detector.update(p_values(random.random(1000), calibration))
        if detector.alarm_raised_at is not None:
            num_alarms += 1
            detector.reset()
    return num_alarms


def edge_of_the_null(random: Generator, detector: Detector, num_images: int) -> Scores:
    """p-values with as many small ones as the null permits, at all levels at once: the hardest undrifted stream."""
    low = [0.0, *detector.events.low, 1.0]
    bounds = [0.0, *detector.events.bounds[: len(detector.events.low)], 1.0]
    return np.interp(random.random(num_images), bounds, low)


def images_until_frozen_is_seen(p_value: float, n: int, threshold: float) -> int:
    detector = new_detector(np.arange(float(n)), threshold)
    detector.update(np.full(3000, p_value))
    return detector.alarm_raised_at or 10_000


def images_until_alarm_ends(random: Generator, n: int, threshold: float, num_drifted: int) -> int:
    """Undrifted images after a long drift of 20 % until the alarm is off."""
    inside, outside = normal_scores(random, n + 50_000, num_drifted)
    calibration, fresh = inside[:n], inside[n:]
    detector = new_detector(calibration, threshold)
    mixed = np.where(random.random(num_drifted) < 0.2, outside, random.normal(size=num_drifted))
    detector.update(p_values(mixed, calibration))
    for start in range(0, len(fresh), 100):
        if not detector.alarm:
            return start
        detector.update(p_values(fresh[start : start + 100], calibration))
    return 50_000


def unlucky_sets(random: Generator, n: int, num_sets: int) -> list[Scores]:
    """Those of so many calibration sets for which the true share of some event is above its bound, the worst first."""
    events = new_detector(np.arange(float(n)), 1e6).events
    low_ranks = np.rint(events.low * (n + 1)).astype(int) - 1
    high_ranks = np.rint(events.high * (n + 1)).astype(int) - 1
    excesses = []
    for _ in range(num_sets):
        ordered = np.sort(random.random(n))  # of a uniform score the share below c is c
        shares = np.concatenate([ordered[low_ranks - 1], 1 - ordered[high_ranks]])  # p above that of rank j: from j + 1
        spread = np.sqrt(events.bounds * (1 - events.bounds))
        excesses.append((float(((shares - events.bounds) / spread).max()), ordered))
    excesses.sort(key=lambda pair: -pair[0])
    return [ordered for excess, ordered in excesses if excess > 0]
