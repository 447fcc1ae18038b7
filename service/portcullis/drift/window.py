"""Drift: the window of recent scores against the reference in the manifest. Pure arithmetic; no clocks, no threads.

What is here is for the eye: looked at often enough, any of it strays. The alarm is the evidence's (evidence.py).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.gate import P_VALUE_BUCKETS
from portcullis.bundle.manifest import CalibrationScores, Manifest
from portcullis.drift.evidence import Detector
from portcullis.drift.rings import ACCEPTED, UNSURE
from portcullis.schemas.drift import DriftReport

SCORE_QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
EMPTY_SHARE = 1e-4  # keeps empty buckets finite in the logarithm
_WIDTHS = np.diff(P_VALUE_BUCKETS, prepend=0.0)
_NORMAL_QUANTILE = 1.959963984540054  # of 97.5 %: a 95 % interval leaves out as much at either end


@dataclass(frozen=True)
class Window:
    """The most recent answers of one model, oldest first, one entry an image."""

    scores: NDArray[np.float32]
    p_values: NDArray[np.float32]
    class_indices: NDArray[np.uint16]
    outcomes: NDArray[np.uint8]
    """ACCEPTED, STRANGER or UNSURE."""

    @property
    def num_images(self) -> int:
        return len(self.scores)


def measure(window: Window, manifest: Manifest, calibration: CalibrationScores, detector: Detector) -> DriftReport:
    """Everything about the window and the evidence at this moment; `calibration` is of the score that gates."""
    mix = class_mix(window.class_indices, len(manifest.labels))
    shares = p_value_shares(window.p_values)
    num_rejected = int(np.count_nonzero(window.outcomes != ACCEPTED))
    num_unsure = int(np.count_nonzero(window.outcomes == UNSURE))
    return DriftReport(
        num_images=window.num_images,
        evidence_log10=detector.evidence_log10,
        alarm=detector.alarm,
        threshold=detector.threshold,
        num_images_since_reset=detector.num_images,
        num_alarms_since_reset=detector.num_alarms,
        psi=None if shares is None else psi(shares),
        ks=ks_distance(window.scores, calibration),
        reject_ratio=num_rejected / window.num_images if window.num_images else None,
        reject_ratio_interval=wilson_interval(num_rejected, window.num_images),
        class_mix=mix,
        class_mix_reference=manifest.class_mix,
        class_mix_distance=None if mix is None else total_variation(mix, manifest.class_mix),
        p_value_shares=shares,
        score_quantiles=score_quantiles(window.scores),
        unsure_ratio=num_unsure / window.num_images if window.num_images else None,
    )


def p_value_shares(p_values: NDArray[np.floating[Any]]) -> tuple[float, ...] | None:
    """Share of p-values in each of P_VALUE_BUCKETS; an edge belongs to the bucket below it, as in Prometheus."""
    if len(p_values) == 0:
        return None
    # compared as float32, as the ring keeps them: else 0.05 of the ring would lie above the edge 0.05
    edges = np.array(P_VALUE_BUCKETS, dtype=np.float32)
    buckets = np.searchsorted(edges, np.nan_to_num(np.asarray(p_values, dtype=np.float32)), side="left")
    counts = np.bincount(np.minimum(buckets, len(edges) - 1), minlength=len(edges))
    return tuple((counts / len(p_values)).tolist())


def psi(shares: tuple[float, ...]) -> float:
    """Population stability index: sum of (share - width) ln(share / width) over the p-value buckets."""
    observed = np.maximum(shares, EMPTY_SHARE)
    return float(np.sum((observed - _WIDTHS) * np.log(observed / _WIDTHS)))


def ks_distance(scores: NDArray[np.floating[Any]], calibration: CalibrationScores) -> float | None:
    """Kolmogorov-Smirnov: the largest gap between the shares at or below any score, window against calibration.

    Where the manifest keeps some ranks only it may be off by the gap between two of them. NaN is the strangest score.
    """
    if len(scores) == 0:
        return None
    window = np.sort(np.where(np.isnan(scores), -np.inf, scores))
    reference = np.array(calibration.scores)
    ranks = np.arange(len(reference) + 1) if calibration.ranks is None else np.array([0, *calibration.ranks])
    jumps = np.concatenate([window, reference])  # both are step functions: the largest gap is at a step
    of_window = np.searchsorted(window, jumps, side="right") / len(window)
    of_reference = ranks[np.searchsorted(reference, jumps, side="right")] / calibration.num_images
    return float(np.abs(of_window - of_reference).max())


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share; nothing is known from no trials."""
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, _NORMAL_QUANTILE**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _NORMAL_QUANTILE / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return max(centre - half, 0.0), min(centre + half, 1.0)


def class_mix(class_indices: NDArray[np.integer[Any]], num_classes: int) -> tuple[float, ...] | None:
    """Share of each predicted class."""
    if len(class_indices) == 0:
        return None
    counts = np.bincount(class_indices, minlength=num_classes)[:num_classes]
    return tuple((counts / len(class_indices)).tolist())


def total_variation(mix: tuple[float, ...], reference: tuple[float, ...]) -> float:
    return 0.5 * math.fsum(abs(share - expected) for share, expected in zip(mix, reference, strict=True))


def score_quantiles(scores: NDArray[np.floating[Any]]) -> dict[float, float]:
    """Quantiles of the finite scores, each one of them: no score is made up between two; empty where there is none."""
    finite = scores[np.isfinite(scores)]
    if len(finite) == 0:
        return {}
    values = np.quantile(finite, SCORE_QUANTILES, method="inverted_cdf")
    return dict(zip(SCORE_QUANTILES, values.tolist(), strict=True))
