"""How a gate is written, wherever one is asked for: settings, admin calls, requests, the command line.

    [score:]accept<percent>[:by-class][+right<percent>]      accept95, mmles:accept99:by-class, accept95+right99
    [score:]right<percent>                                   right99
    [score:]<number>                                         -14.2, mmles:-14.2

It knows no bundle: whether one can promise what is written is for `promises.py` to say.
"""

import math
import re
from dataclasses import dataclass

from portcullis.bundle import gate, right
from portcullis.errors import InvalidParameter, UnknownOperatingPoint

BY_CLASS = "by-class"
MAX_LENGTH = 100
_SCORE = re.compile(r"^([a-z][a-z_]*):(.*)$", re.DOTALL)


@dataclass(frozen=True)
class Spelling:
    """What was written, taken apart."""

    text: str
    score: str | None = None
    """Which score gates; none: the bundle's own."""
    accept: str | None = None
    is_by_class: bool = False
    right: str | None = None
    threshold: float | None = None

    @property
    def gate(self) -> str:
        """What accepts by the score, without the promise to be right."""
        return self.text.partition("+")[0] if self.accept is not None else ""


def parse(text: str) -> Spelling:
    """Take a gate apart; whatever is no gate is refused."""
    if len(text) > MAX_LENGTH:
        raise InvalidParameter(f"expected an operating point such as accept95 or a score, got {len(text)} characters")
    match = _SCORE.match(text)
    score, rest = (match[1], match[2]) if match else (None, text)
    if rest.startswith("right"):
        right.risk_of(rest)
        return Spelling(text, score, right=rest)
    if rest.startswith("accept"):
        return _parse_accept(text, score, rest)
    if rest[:1].isalpha() and not _is_float(rest):
        raise UnknownOperatingPoint(
            f"unknown operating point {text!r}: expected accept<percent>, right<percent> or a score"
        )
    expected = "an operating point such as accept95 or a finite score"
    return Spelling(text, score, threshold=parse_threshold(rest, expected))


def _parse_accept(text: str, score: str | None, rest: str) -> Spelling:
    named, plus, promised = rest.partition("+")
    accept, colon, how = named.partition(":")
    gate.alpha_of(accept)
    if colon and how != BY_CLASS:
        raise UnknownOperatingPoint(f"unknown operating point {text!r}: expected {accept} or {accept}:{BY_CLASS}")
    if plus:
        right.risk_of(promised)
    return Spelling(text, score, accept, bool(colon), promised if plus else None)


def parse_threshold(text: str, expected: str = "a threshold that is a finite score, such as -14.2") -> float:
    """An absolute score threshold; NaN and infinities are refused, since they would decide without looking."""
    threshold = float(text) if _is_float(text) else math.nan
    if not math.isfinite(threshold):
        raise InvalidParameter(f"expected {expected}, got {text[:40]!r}")
    return threshold


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
