"""The second promise, `right99`: familiar images that pass are answered rightly at least 99 % of the time.

Selective risk by a fixed sequence of binomial tests (Geifman & El-Yaniv, arXiv 1705.08500; Learn then Test, arXiv
2110.01052). Candidates l_1 > l_2 > … for the least probability were fixed before the calibration images were looked
at. For each in turn count the n_i calibration images that the gate accepts with a probability of at least l_i and the
e_i wrong answers among them; go on while P(Binomial(n_i, r) <= e_i) <= 1 - confidence, keep the last that passed. The
tests are in a fixed order and end with the first failure, so the chance that any of those passed is a false proof is
at most 1 - confidence. The sequence begins at the first candidate of at most 1 - r: with calibrated probabilities the
answers above it are wrong less often than r, and fewer of them could prove less.

The gate's own threshold is the k-th smallest score of the same images. Given it, the images above it are independent
draws from all images above it, so the images strictly above it are counted, not the one that set it.

It holds for images like the calibration images only, and says nothing about strangers that the gate lets through.
"""

import bisect
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from portcullis.bundle import binomial
from portcullis.bundle.manifest import RightPoint
from portcullis.errors import UnknownOperatingPoint

PUBLISHED = ("right95", "right99", "right995")
_NAME = re.compile(r"right(?!100)(\d\d)\.?(\d{0,2})", re.ASCII)  # whoever writes right100 does not mean 10.0 %


@dataclass(frozen=True)
class Passing:
    """The calibration images that a gate accepts."""

    probabilities: Sequence[float]
    """Of every one, for the coverage."""
    tested: Sequence[tuple[float, bool]]
    """Probability and whether the answer is right, of those that did not set the gate's threshold themselves."""
    num_images: int
    """All calibration images, accepted or not."""


def risk_of(name: str) -> Fraction:
    """The share of wrong answers that `right<percent>` allows: right99 gives 1/100, right995 and right99.5 1/200."""
    match = _NAME.fullmatch(name)
    percent = Fraction(f"{match[1]}.{match[2] or 0}") if match else Fraction(0)
    if percent == 0:
        raise UnknownOperatingPoint(
            f"unknown operating point {name[:40]!r}: expected right<percent>, such as right99 or right995"
        )
    return 1 - percent / 100


def right_point(name: str, gate: str, passing: Passing, grid: Sequence[float]) -> RightPoint:
    """The promise on these calibration images, refused where they cannot prove it. `gate` is what accepts as well."""
    risk = float(risk_of(name))
    counted = _counts([candidate for candidate in grid if candidate <= 1 - risk], passing.tested)
    proven = list(itertools.takewhile(lambda count: binomial.proves(count[2], count[1], risk), counted))
    if not proven:
        raise UnknownOperatingPoint(_why_not(name, risk, counted))
    min_probability = proven[-1][0]
    num_passing = sum(probability >= min_probability for probability in passing.probabilities)
    return RightPoint(
        name=name,
        gate=gate,
        risk=risk,
        confidence=binomial.CONFIDENCE,
        min_probability=min_probability,
        coverage=num_passing / passing.num_images,
    )


def _counts(grid: Sequence[float], tested: Sequence[tuple[float, bool]]) -> list[tuple[float, int, int]]:
    """Each candidate with how many images reach it and how many of those are wrong."""
    rising = sorted(tested)
    probabilities = [probability for probability, _ in rising]
    wrong_above = [0, *itertools.accumulate(not is_right for _, is_right in reversed(rising))]
    counts = []
    for candidate in grid:
        num_above = len(rising) - bisect.bisect_left(probabilities, candidate)
        counts.append((candidate, num_above, wrong_above[num_above]))
    return counts


def _why_not(name: str, risk: float, counted: list[tuple[float, int, int]]) -> str:
    needed = binomial.least_trials(risk)
    if not counted:
        return f"{name} cannot be proven: the bundle has no candidate for the least probability of an answer"
    candidate, num_images, num_wrong = counted[0]
    return (
        f"{name} cannot be proven: it takes at least {needed} calibration images without a wrong answer, or more with "
        f"few; at a probability of {candidate:.4g} and above there are {num_images} with {num_wrong} wrong"
    )
