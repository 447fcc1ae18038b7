"""Which gates a number of calibration images can promise. Arithmetic alone: it needs no image and no score."""

from __future__ import annotations

import math
from dataclasses import dataclass

from portcullis.bundle import binomial, gate


@dataclass(frozen=True)
class Promise:
    """What one operating point can say with so many calibration images."""

    name: str
    share: float
    """Familiar images are rejected at most this often, on average over calibration sets."""
    bound: float | None
    """And at most this often with 95 % confidence; none where there are too few images for the operating point."""
    num_needed: int

    def __str__(self) -> str:
        if self.bound is None:
            return f"{self.name} is out of reach: it needs {self.num_needed} calibration images"
        return (
            f"{self.name}: at most {_percent(self.share)} of familiar images rejected on average, "
            f"at most {_percent(self.bound)} with 95 % confidence"
        )


def promises(num_calibration: int) -> tuple[Promise, ...]:
    """Of every published operating point."""
    return tuple(_promise(name, num_calibration) for name in gate.PUBLISHED)


def _promise(name: str, num_calibration: int) -> Promise:
    alpha = gate.alpha_of(name)
    rank = math.floor(alpha * (num_calibration + 1))
    bound = binomial.rejected_share_bound(rank, num_calibration) if rank else None
    return Promise(name, float(alpha), bound, math.ceil(1 / alpha) - 1)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
