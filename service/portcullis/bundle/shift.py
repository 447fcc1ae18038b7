"""How far scores may move before the gate's promise moves with them. Pure arithmetic on calibration scores.

A device that rounds otherwise than the machine that calibrated moves every score a little. With the threshold at c_(k),
the k-th smallest of n calibration scores, images whose scores all fall by d are rejected as if the threshold had risen
by d: their number grows by #{c_(k) <= c < c_(k) + d}. So d <= c_(k+m) - c_(k) adds at most m images, and
d <= c_(k) - c_(k-m) takes away at most m where scores rise. What is tolerated is the smaller of the two gaps.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from portcullis.bundle.gate import DEFAULT_OPERATING_POINT, Gate, alpha_of
from portcullis.bundle.manifest import CalibrationScores

MAX_MOVED_SHARE = 0.005
"""Of familiar images, by how much the rejected share of accept95 may move: from 5 % to 4.5 or 5.5 %."""
MIN_MOVED_IMAGES = 3
"""Of a small calibration set: two neighbours may lie arbitrarily close together, four seldom do."""

MIN_SPREAD = 1e-3
"""Of p (1 − p): nearer to 0 or 1 a probability is rounded so coarsely that its odds say nothing."""


@dataclass(frozen=True)
class Shifts:
    """By how much answers differ on this device from those of the export, at the most, by the self-test."""

    score: float = 0.0
    parts: tuple[float, ...] = ()
    """Of each part of the score."""
    log_odds: float = 0.0
    """Of the answered class: a probability p moves by p (1 − p) times as much."""


def tolerated(calibration: CalibrationScores) -> float:
    """The largest shift of all scores, either way, that moves the rejected share by at most `max_moved_share`."""
    scores, kept, middle = calibration.scores, len(calibration.scores), _position(calibration)
    moved = _moved_images(kept)
    above = scores[min(kept - 1, middle + moved)] - scores[middle]
    below = scores[middle] - scores[middle - moved] if middle >= moved else math.inf
    return min(above, below)


def max_moved_share(calibration: CalibrationScores) -> float:
    """What `tolerated` promises: half a percentage point, or as little as a small calibration set can tell apart."""
    return _moved_images(len(calibration.scores)) / len(calibration.scores)


def moved_share(gate: Gate, shifts: Shifts) -> float:
    """By how much the share of familiar images that a gate rejects moves, at the most, where all answers shift so far.

    Of the score that it compares, be it the graph's own or a part; and of the probability, where that has a say too.
    """
    moved = _moved_strangers(gate, shifts.score if gate.column is None else shifts.parts[gate.column])
    if gate.right is not None:
        near = shifts.log_odds * spread(gate.min_probability)
        moved += _moved(gate.min_probability, near, gate.probabilities)
    return min(moved, 1.0)


def spread(probability: float) -> float:
    """By how much a probability moves where its log-odds move by one."""
    return max(probability * (1 - probability), MIN_SPREAD)


def _moved_strangers(gate: Gate, shift: float) -> float:
    if gate.by_class is None:
        return _moved(gate.threshold, shift, gate.calibration.scores)
    of_classes = [
        (one.calibration.num_images, _moved(one.threshold, shift, one.calibration.scores)) for one in gate.by_class
    ]
    return sum(num * moved for num, moved in of_classes) / sum(num for num, _ in of_classes)


def _moved(threshold: float, shift: float, scores: Sequence[float]) -> float:
    below = bisect.bisect_left(scores, threshold)
    rise = bisect.bisect_left(scores, threshold + shift) - below
    fall = below - bisect.bisect_left(scores, threshold - shift)
    return max(rise, fall) / len(scores)


def near_the_threshold(difference: float, score: float, calibration: CalibrationScores) -> float:
    """What a difference at this score comes to among familiar images.

    Rounding grows with what is rounded. A score that lies several times as far from the median as the lowest of the
    calibration scores says that many times less about those near a threshold.
    """
    scores = calibration.scores
    median = scores[len(scores) // 2]
    spread = median - scores[0]
    return difference / max(1.0, (median - score) / spread) if spread > 0 else difference


def default_moved_share(shift: float, calibration: CalibrationScores) -> float:
    """The same at the threshold of accept95, published or not."""
    return _moved(calibration.scores[_position(calibration)], shift, calibration.scores)


def _position(calibration: CalibrationScores) -> int:
    """Where the threshold of accept95 stands among the kept scores."""
    return max(1, math.floor(alpha_of(DEFAULT_OPERATING_POINT) * (len(calibration.scores) + 1))) - 1


def _moved_images(num_scores: int) -> int:
    return max(MIN_MOVED_IMAGES, math.floor(MAX_MOVED_SHARE * num_scores))
