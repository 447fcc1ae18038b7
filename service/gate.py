"""The gate: conformal p-value, operating points and verdict of a score. Pure; knows no images, HTTP or clocks.

With n calibration scores of held-out inside images, `p(s) = (1 + #{c <= s}) / (n + 1)`. For an image exchangeable
with them P(p <= alpha) <= alpha, so rejecting at p <= alpha rejects at most a share alpha of familiar images, by
proof. p <= alpha is the same as s < c_(k), the k-th smallest score, k = floor(alpha (n + 1)).
"""

import bisect
import functools
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from service.bundle import CalibrationScores, Manifest, OperatingPoint
from service.errors import InvalidParameter, UnknownOperatingPoint

CONFIDENCE = 0.95
MAX_KEPT_SCORES = 10_000
PUBLISHED = ("accept90", "accept95", "accept99")
DEFAULT_OPERATING_POINT = "accept95"
_OPERATING_POINT = re.compile(r"^accept(\d{1,2}(?:\.\d{1,4})?)$")


class Verdict(StrEnum):
    """The gate's answer."""

    ACCEPT = "accept"
    REJECT = "reject"


@dataclass(frozen=True)
class Gate:
    """A threshold, and the operating point that it came from where it came from one."""

    threshold: float
    operating_point: str | None


def decide(score: float, threshold: float) -> Verdict:
    """Accept scores at or above the threshold. NaN compares false, so it is rejected."""
    return Verdict.ACCEPT if score >= threshold else Verdict.REJECT


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
    threshold, rank = _threshold_and_rank(name, calibration)
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


def choose(gate: str, manifest: Manifest) -> Gate:
    """The gate that a setting asks for: an operating point or an absolute score threshold."""
    if gate.startswith("accept"):
        return choose_operating_point(gate, manifest)
    return Gate(parse_threshold(gate), None)


def choose_operating_point(name: str, manifest: Manifest) -> Gate:
    """A published operating point, or any other `accept<percent>` that the calibration set can promise."""
    for point in manifest.operating_points:
        if point.name == name:
            return Gate(point.threshold, point.name)
    try:
        return Gate(_threshold_and_rank(name, manifest.calibration)[0], name)
    except UnknownOperatingPoint as error:
        known = ", ".join(point.name for point in manifest.operating_points)
        raise UnknownOperatingPoint(f"{error}; published: {known or 'none'}") from None


def expected_rejected_share(gate: Gate, calibration: CalibrationScores) -> float:
    """Share of familiar images that a gate rejects at the most: promised by a name, counted for a bare threshold."""
    if gate.operating_point is not None:
        return float(alpha_of(gate.operating_point))
    below = bisect.bisect_left(calibration.scores, gate.threshold)
    if calibration.ranks is not None:
        below = calibration.num_images if below == len(calibration.ranks) else calibration.ranks[below] - 1
    return below / calibration.num_images


def parse_threshold(text: str) -> float:
    """An absolute score threshold; NaN and infinities are refused, since they would decide without looking."""
    try:
        threshold = float(text)
    except ValueError:
        threshold = math.nan
    if not math.isfinite(threshold):
        raise InvalidParameter(f"expected an operating point such as accept95 or a finite score, got {text!r}")
    return threshold


def alpha_of(name: str) -> Fraction:
    """The share of familiar images that `accept<percent>` may reject, exactly: accept97.5 gives 1/40."""
    match = _OPERATING_POINT.match(name)
    percent = Fraction(match.group(1)) if match else Fraction(0)
    if not 0 < percent < 100:
        raise UnknownOperatingPoint(
            f"unknown operating point {name[:40]!r}: expected accept<percent> with a percent between 0 and 100"
        )
    return 1 - percent / 100


@functools.lru_cache(maxsize=4096)
def rejected_share_bound(rank: int, num_images: int, confidence: float = CONFIDENCE) -> float:
    """Upper bound on the true rejected share for one given calibration set.

    With the threshold at the k-th smallest of n scores the share is Beta(k, n + 1 - k); this is its quantile at
    `confidence`, found by bisection on P(Beta(k, n + 1 - k) <= x) = P(Binomial(n, x) >= k).
    """
    low, high = rank / (num_images + 1), 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _binomial_tail(rank - 1, num_images, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _threshold_and_rank(name: str, calibration: CalibrationScores) -> tuple[float, int]:
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


def _binomial_tail(successes: int, trials: int, probability: float) -> float:
    """P(Binomial <= successes) below the mean: its last term times a sum of falling ratios, some root of n of them."""
    last = math.exp(
        math.lgamma(trials + 1)
        - math.lgamma(successes + 1)
        - math.lgamma(trials - successes + 1)
        + successes * math.log(probability)
        + (trials - successes) * math.log1p(-probability)
    )
    odds = (1 - probability) / probability
    ratio = total = 1.0
    for count in range(successes, 0, -1):
        ratio *= count * odds / (trials - count + 1)
        total += ratio
        if ratio < 1e-17 * total:
            break
    return last * total
