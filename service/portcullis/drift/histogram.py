"""Counts the scores of one version in buckets that its calibration scores lay out; knows no model, file or metric.

The supervisor counts what it reads from the rings anyway, so a request pays nothing for it. Buckets are Prometheus's:
an edge belongs to the bucket below it.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.manifest import CalibrationScores
from portcullis.schemas.drift import ScoreHistogram

NUM_STEPS = 24
BELOW, ABOVE = 1.0, 0.5
"""How far the equal steps reach beyond the middle 98 % of the calibration scores, in widths of that middle."""
FAR_BELOW = (16.0, 8.0, 4.0, 2.0)
"""Edges for scores that are stranger still, in widths below that middle: they double, so a far stranger is told from
a farther one however strange either is."""


def plus(histogram: ScoreHistogram, scores: NDArray[np.floating[Any]]) -> ScoreHistogram:
    """The same with more scores; NaN is the strangest, so it is in the lowest bucket."""
    buckets = np.searchsorted(histogram.edges, np.where(np.isnan(scores), -np.inf, scores), side="left")
    counts = np.bincount(buckets, minlength=len(histogram.counts)) + histogram.counts
    total = histogram.sum + float(scores[np.isfinite(scores)].sum(dtype=np.float64))
    return replace(histogram, counts=tuple(counts.tolist()), sum=total)


def continued(fresh: ScoreHistogram, before: ScoreHistogram | None) -> ScoreHistogram:
    """What was counted before, where it was counted in the same buckets; else the fresh one."""
    if before is None or before.edges != fresh.edges or len(before.counts) != len(fresh.counts):
        return fresh
    return before if min(before.counts) >= 0 and math.isfinite(before.sum) else fresh


def empty(calibration: CalibrationScores) -> ScoreHistogram:
    """No scores yet, in the buckets of this calibration set."""
    edges = bucket_edges(calibration)
    return ScoreHistogram(edges, (0,) * (len(edges) + 1), 0.0)


def bucket_edges(calibration: CalibrationScores) -> tuple[float, ...]:
    """Equal steps around the calibration scores, then doubling ones below. Rounded, so that a label is short."""
    low, high = np.quantile(calibration.scores, (0.01, 0.99), method="inverted_cdf").tolist()
    width = high - low or max(abs(high), 1.0)  # scores that are all one still get buckets
    step = float(f"{(BELOW + 1 + ABOVE) * width / NUM_STEPS:.2g}")
    digits = 2 - math.floor(math.log10(step))
    first = math.floor((low - BELOW * width) / step)
    near = [round((first + number) * step, digits) for number in range(NUM_STEPS + 1)]
    far = [round(low - widths * width, digits) for widths in FAR_BELOW]
    return (*far, *near)
