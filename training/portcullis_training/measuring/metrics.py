"""Figures from NumPy arrays: calibration, discrimination, detection. Knows no torch, no files and no methods.

Detection compares the scores of inside images with those of outside ones; higher is more familiar. Every function
says which of the two is the positive class.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Indices = NDArray[np.integer]

NUM_BINS = 15
"""Equal-width bins of the calibration error, as in the paper."""
KEPT_SHARE = 0.95
"""The share of inside images that TNR@TPR95 keeps."""


class ReliabilityBins(NamedTuple):
    """Per bin (lo, hi] of the answered class's probability; empty bins hold zeros."""

    num_images: NDArray[np.int64]
    mean_probability: Array
    accuracy: Array


class RiskCoverage(NamedTuple):
    """The share of wrong answers among the accepted, for every share of images that a threshold can accept."""

    coverage: Array
    risk: Array


def accuracy(probabilities: Array, labels: Indices) -> float:
    """Share of images whose most probable class is their label."""
    return float((probabilities.argmax(axis=1) == labels).mean())


def negative_log_likelihood(probabilities: Array, labels: Indices) -> float:
    """Mean −log p_y in nats."""
    of_label = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return float(-np.log(np.maximum(of_label, np.finfo(np.float32).tiny)).mean())


def brier(probabilities: Array, labels: Indices) -> float:
    """Mean over images of Σ_j (p_j − [j = y])², from 0 to 2."""
    errors = probabilities.astype(np.float64)
    errors[np.arange(len(labels)), labels] -= 1
    return float((errors**2).sum(axis=1).mean())


def reliability_bins(probabilities: Array, labels: Indices, num_bins: int = NUM_BINS) -> ReliabilityBins:
    """Mean probability and accuracy in equal-width bins (lo, hi]."""
    answered = probabilities.max(axis=1).astype(np.float64)
    is_correct = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0, 1, num_bins + 1)[1:-1]
    indices = np.searchsorted(edges, answered, side="left")  # left: a value on an edge belongs to the bin below
    num_images = np.bincount(indices, minlength=num_bins)
    divisors = np.maximum(num_images, 1)
    mean_probability = np.bincount(indices, weights=answered, minlength=num_bins) / divisors
    bin_accuracy = np.bincount(indices, weights=is_correct, minlength=num_bins) / divisors
    return ReliabilityBins(num_images, mean_probability, bin_accuracy)


def expected_calibration_error(probabilities: Array, labels: Indices, num_bins: int = NUM_BINS) -> float:
    """ECE: mean over images of |accuracy − mean probability| of their bin."""
    bins = reliability_bins(probabilities, labels, num_bins)
    gaps = np.abs(bins.accuracy - bins.mean_probability)
    return float((gaps * bins.num_images).sum() / bins.num_images.sum())


def auroc(inside: Array, outside: Array) -> float:
    """P(inside score > outside score), ties counting half. Inside is positive; swapping roles changes nothing."""
    inside, outside = _scores(inside), np.sort(_scores(outside))
    num_below = np.searchsorted(outside, inside, side="left")
    num_at_or_below = np.searchsorted(outside, inside, side="right")
    return float((num_below + num_at_or_below).sum() / (2 * len(inside) * len(outside)))


def aupr_inside_positive(inside: Array, outside: Array) -> float:
    """Average precision of finding inside images by a high score; chance is the share of inside images."""
    return _average_precision(_scores(inside), _scores(outside))


def aupr_outside_positive(inside: Array, outside: Array) -> float:
    """Average precision of finding outside images by a low score; the paper's tables print this one."""
    return _average_precision(-_scores(outside), -_scores(inside))


def tnr_at_tpr95(inside: Array, outside: Array) -> float:
    """Inside is positive: the share of outside images under the threshold that keeps ≥ 95 % of inside ones."""
    inside, outside = np.sort(_scores(inside)), _scores(outside)
    # The 1e-9 undoes rounding: 0.95 · 20 is 19.000000000000004 for some n, which would keep one image too many.
    num_kept = int(np.ceil(KEPT_SHARE * len(inside) - 1e-9))
    threshold = inside[len(inside) - num_kept]
    return float((outside < threshold).mean())


def risk_coverage(confidence: Array, is_correct: NDArray[np.bool_]) -> RiskCoverage:
    """Accept from the most confident down, images of equal confidence together."""
    confidence = _scores(confidence)
    order = np.argsort(-confidence, kind="stable")
    is_last_of_tie = np.append(np.diff(confidence[order]) != 0, True)
    num_accepted = np.arange(1, len(order) + 1)
    risk = np.cumsum(~is_correct[order]) / num_accepted
    return RiskCoverage((num_accepted / len(order))[is_last_of_tie], risk[is_last_of_tie])


def area_under_risk_coverage(curve: RiskCoverage) -> float:
    """Mean risk over coverage, the risk of each step holding from the step before."""
    return float((np.diff(curve.coverage, prepend=0.0) * curve.risk).sum())


def risk_at(curve: RiskCoverage, coverage: float) -> float:
    """The risk where at least this share is accepted, and no more images than it takes."""
    return float(curve.risk[np.searchsorted(curve.coverage, coverage - 1e-9)])


def _average_precision(positive: Array, negative: Array) -> float:
    """Σ (R_k − R_{k−1}) · P_k over the distinct thresholds, from the highest down."""
    thresholds = np.unique(positive)[::-1]  # recall does not change at the others
    num_positive = _num_at_or_above(positive, thresholds)
    precision = num_positive / (num_positive + _num_at_or_above(negative, thresholds))
    return float((np.diff(num_positive, prepend=0) * precision).sum() / len(positive))


def _num_at_or_above(scores: Array, thresholds: Array) -> NDArray[np.int64]:
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")


def _scores(scores: Array) -> Array:
    """Checked: a NaN sorts above everything, so it would silently count as most familiar."""
    if len(scores) == 0 or np.isnan(scores).any():
        raise ValueError(f"expected scores without NaN, got {len(scores)}, {int(np.isnan(scores).sum())} of them NaN")
    return scores.astype(np.float64)
