"""The gate: conformal p-value, operating points and verdict of an answer. Pure; knows no images, HTTP or clocks.

With n calibration scores of held-out inside images, `p(s) = (1 + #{c <= s}) / (n + 1)`. For an image exchangeable
with them P(p <= alpha) <= alpha, so rejecting at p <= alpha rejects at most a share alpha of familiar images, by
proof. p <= alpha is the same as s < c_(k), the k-th smallest score, k = floor(alpha (n + 1)). With the calibration
images of the predicted class alone the same holds within that class. `promises.py` makes gates of what people write.
"""

import bisect
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from portcullis.bundle.binomial import rejected_share_bound
from portcullis.bundle.manifest import CalibrationScores, OperatingPoint, RightPoint
from portcullis.errors import UnknownOperatingPoint

MAX_KEPT_SCORES = 10_000
PUBLISHED = ("accept90", "accept95", "accept99")
DEFAULT_OPERATING_POINT = "accept95"
P_VALUE_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)
"""Upper edges in which p-values are counted. While nothing drifts each bucket has its width as its share."""
_OPERATING_POINT = re.compile(r"accept(\d{1,2}(?:\.\d{1,4})?)", re.ASCII)


class Verdict(StrEnum):
    """The gate's answer."""

    ACCEPT = "accept"
    REJECT = "reject"


class Reason(StrEnum):
    """Which rule turned an image away."""

    STRANGER = "stranger"
    """Its score is below the threshold: it does not look like the calibration images."""
    UNSURE = "unsure"
    """It is familiar, but its probability is too low for the promise to be right."""


@dataclass(slots=True)
class Row:
    """What the engine says of one image, before the gate."""

    class_index: int
    probability: float
    score: float
    parts: list[float]
    """Columns as the manifest's `part_names`."""


@dataclass(frozen=True, slots=True)
class ClassGate:
    """The rule for images that are answered with one class."""

    threshold: float
    calibration: CalibrationScores


@dataclass(frozen=True, slots=True)
class Gate:
    """The rule in force: which score is compared with which threshold, and how probable an answer must be."""

    operating_point: str | None
    """As it was asked for; none: a bare threshold."""
    score: str
    """Name of the score that is compared."""
    column: int | None
    """Where it stands among the parts; none: it is the graph's own score."""
    calibration: CalibrationScores
    """Of that score, over all classes."""
    threshold: float
    """Scores below it are rejected; minus infinity where no score is too low."""
    by_class: tuple[ClassGate, ...] | None = None
    """In the place of `threshold`, one for each predicted class."""
    right: RightPoint | None = None
    min_probability: float = 0.0
    """Answers below it are rejected as unsure."""
    probabilities: tuple[float, ...] = ()
    """Of the calibration images' answers, rising, where the probability has a say."""
    stranger_share: float = 0.0
    """Share of familiar images turned away by their score: promised by a name, counted for a bare threshold."""
    rejected_share: float = 0.0
    """Share turned away by either rule: the same, or counted where the probability has a say."""

    @property
    def part(self) -> str | None:
        """Name of the part that is compared in the place of the graph's own score."""
        return None if self.column is None else self.score

    @property
    def text(self) -> str:
        """As it can be asked for."""
        prefix = "" if self.column is None else f"{self.score}:"
        return self.operating_point if self.operating_point is not None else f"{prefix}{self.threshold!r}"

    def score_of(self, row: Row) -> float:
        """What is compared."""
        return row.score if self.column is None else row.parts[self.column]

    def threshold_for(self, class_index: int) -> float:
        """What it is compared with in images that are answered so."""
        return self.threshold if self.by_class is None else self.by_class[class_index].threshold

    def p_value(self, row: Row) -> float:
        """Of the score that gates, among the calibration images of the same answer where the gate is by class."""
        calibration = self.calibration if self.by_class is None else self.by_class[row.class_index].calibration
        return p_value(self.score_of(row), calibration)


def decide(row: Row, gate: Gate) -> tuple[Verdict, Reason | None]:
    """Accept scores and probabilities at or above their thresholds. NaN compares false, so it is a stranger."""
    if not gate.score_of(row) >= gate.threshold_for(row.class_index):
        return Verdict.REJECT, Reason.STRANGER
    if not row.probability >= gate.min_probability:
        return Verdict.REJECT, Reason.UNSURE
    return Verdict.ACCEPT, None


def p_value(score: float, calibration: CalibrationScores) -> float:
    """Conformal p-value: small means stranger than nearly all calibration images. NaN is the strangest."""
    return (1 + count_at_or_below(score, calibration)) / (calibration.num_images + 1)


def count_at_or_below(score: float, calibration: CalibrationScores) -> int:
    """How many calibration scores are <= score; where only some are kept, the most it can be (so p stays valid)."""
    if math.isnan(score):
        return 0
    position = bisect.bisect_right(calibration.scores, score)
    if calibration.ranks is None:
        return position
    return calibration.num_images if position == len(calibration.ranks) else calibration.ranks[position] - 1


def summarise(scores: list[float], max_kept: int = MAX_KEPT_SCORES) -> CalibrationScores:
    """Sorted calibration scores for a manifest; beyond `max_kept` of them, evenly spaced order statistics."""
    ordered = sorted(scores)
    num_images = len(ordered)
    if num_images == 0 or not all(map(math.isfinite, ordered)):
        raise ValueError(
            f"expected finite calibration scores, got {num_images} of which some are missing or not finite"
        )
    if num_images <= max_kept:
        return CalibrationScores(num_images=num_images, scores=tuple(ordered))
    ranks = sorted({1 + round(i * (num_images - 1) / (max_kept - 1)) for i in range(max_kept)})
    return CalibrationScores(
        num_images=num_images, scores=tuple(ordered[rank - 1] for rank in ranks), ranks=tuple(ranks)
    )


def operating_point(name: str, calibration: CalibrationScores) -> OperatingPoint:
    """The operating point `accept<percent>` on these calibration scores, refused where they cannot promise it."""
    threshold, rank = threshold_and_rank(name, calibration)
    return OperatingPoint(
        name=name,
        alpha=float(alpha_of(name)),
        threshold=threshold,
        rejected_share_bound=rejected_share_bound(rank, calibration.num_images),
    )


def operating_points(calibration: CalibrationScores) -> tuple[OperatingPoint, ...]:
    """Those of the published operating points that this calibration set can promise."""
    points = []
    for name in PUBLISHED:
        try:
            points.append(operating_point(name, calibration))
        except UnknownOperatingPoint:
            continue
    return tuple(points)


def share_below(threshold: float, calibration: CalibrationScores) -> float:
    """Share of the calibration images whose score is below a threshold."""
    below = bisect.bisect_left(calibration.scores, threshold)
    if calibration.ranks is not None:
        below = calibration.num_images if below == len(calibration.ranks) else calibration.ranks[below] - 1
    return below / calibration.num_images


def alpha_of(name: str) -> Fraction:
    """The share of familiar images that `accept<percent>` may reject, exactly: accept97.5 gives 1/40."""
    match = _OPERATING_POINT.fullmatch(name)
    percent = Fraction(match.group(1)) if match else Fraction(0)
    if not 0 < percent < 100:
        raise UnknownOperatingPoint(
            f"unknown operating point {name[:40]!r}: expected accept<percent> with a percent between 0 and 100"
        )
    return 1 - percent / 100


def threshold_and_rank(name: str, calibration: CalibrationScores) -> tuple[float, int]:
    """The k-th smallest score, k = floor(alpha (n + 1)), or the nearest kept below it: lower rejects less."""
    alpha = alpha_of(name)
    rank = math.floor(alpha * (calibration.num_images + 1))
    if rank == 0:
        needed = math.ceil(1 / alpha) - 1
        raise UnknownOperatingPoint(
            f"{name} needs at least {needed} calibration images to keep its promise; "
            f"this bundle has {calibration.num_images}"
        )
    if calibration.ranks is None:
        return calibration.scores[rank - 1], rank
    position = bisect.bisect_right(calibration.ranks, rank) - 1
    return calibration.scores[position], calibration.ranks[position]
