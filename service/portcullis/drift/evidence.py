"""Sequential evidence that traffic no longer looks like the calibration images: an e-detector over p-values.

Knows p-values only: no images, clocks, threads or files. docs/drift.md tells the on-call person what to do with it.

**Null.** Take the calibration score c of rank k among n. S < c has a share Beta(k, n + 1 - k) among familiar
images, or less where scores tie; S > c likewise has at most Beta(n + 1 - k, k). p-values rise with the score, so
p < p(c) implies S < c, and p > p(c) implies S > c. Hence, with u the upper confidence bound of that Beta, the share
of each watched event is at most u: for all events at once with probability CONFIDENCE over calibration sets, the
chances of error of the single bounds adding up to 1 - CONFIDENCE. Nothing is assumed about the scores themselves;
the share must be at most u given all that came before, as it is for independent images.

**Bet.** Stake a part f at odds 1/u: e = 1 - f + f [event] / u. This is the likelihood ratio of the share
u + f (1 - u) against u, and E[e | past] <= 1 under the null for every event, since P(event | past) <= u.

**Sum over start times.** Per bet R <- (1 + R) e, so E[R_t | past] <= 1 + R_(t-1): R_t - t is a supermartingale. A mean
of such R is one again, whatever the bets have to do with each other; here over both tails, all levels and stakes.
By linearity that mean is the Shiryaev-Roberts sum of the mixture: sum_s mean_b prod_(i=s..t) e_b,i =
mean_b sum_s prod e_b,i. (To average the e of each image first would be another bet, spread anew at every image,
and weaker.) Stop at T, the first R_T >= A: A P(T <= m) <= E[R_min(T,m)] <= E[min(T, m)], and with m without end
E[T] >= A, or some streams never alarm, and then E[T] is infinite. To lower R at any time keeps all this: the cap, and
the new beginning from R = 0 at the end of an alarm, so that A images on average lie before the next one as well.
"""

import bisect
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle import binomial, gate
from portcullis.bundle.manifest import CalibrationScores

LEVELS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75)
"""Shares watched from either end. Those above one half overlap, so that no p-value, repeated for ever, is quiet."""
STAKES = (0.1, 0.4)
"""Part of the stake put on each event: the small one finds a trickle of strangers, the large one a flood."""
CONFIDENCE = 0.98
"""That all bounds hold at once for a given calibration set."""
STRANGERS_LEVEL = 0.1
STRANGERS_BUDGET = 0.9
"""Of the chance of error, the part spent on the small p-values: strangers may come as a trickle, and a bound that is
loose there costs images. A frozen camera is one event after the other, so the other bounds can afford to be loose."""
MIN_THRESHOLD, MAX_THRESHOLD = 1e3, 1e15  # quiet traffic has an R of some tens: an alarm below 1000 would not end
ALARM_END = 0.1
"""An alarm ends when the evidence has fallen to this part of A; the evidence then begins anew."""
HEADROOM = 1e6
"""Evidence stops growing at HEADROOM · A, so that an alarm ends soon after its cause."""
MIN_BOUND = 0.005  # no bound is smaller, however coarse the kept ranks: with it no factor exceeds 1 + 0.4 / 0.005
BLOCK = 128  # images at once: the product of so many factors stays inside float64


class Detector:
    """Evidence against one calibration set, and the alarm: on at R >= A, off again once R < A / 10."""

    def __init__(self, calibration: CalibrationScores, threshold: float) -> None:
        if not MIN_THRESHOLD <= threshold <= MAX_THRESHOLD:
            expected = f"{MIN_THRESHOLD:g} to {MAX_THRESHOLD:g} images between false alarms"
            raise ValueError(f"expected an alarm threshold of {expected}, got {threshold!r}")
        self.threshold = float(threshold)
        self.events = _watch(calibration)
        self._factors = self.events.factors()  # (outcome, bet)
        self.reset()

    def reset(self) -> None:
        """Forget everything: for a new model."""
        self._evidence = np.zeros(self._factors.shape[1])  # R of each bet
        self.num_images = 0
        self.num_alarms = 0
        self.alarm = False
        self.alarm_raised_at: int | None = None
        """How many images since the reset when the latest alarm was raised; none: there was none."""

    @property
    def evidence_log10(self) -> float:
        """log10 of the mean R, 0 where there is none; the alarm is raised at log10 A."""
        return math.log10(max(float(self._evidence.mean()), 1.0))

    def update(self, p_values: NDArray[np.floating[Any]]) -> None:
        """Take in p-values, oldest first. NaN counts as the strangest."""
        outcomes = self.events.outcomes(p_values)
        start = 0
        while start < len(outcomes):
            start += self._advance(outcomes[start : start + BLOCK])

    def to_dict(self) -> dict[str, Any]:
        """The state for a JSON file, so that a restart does not reset it."""
        return {
            "fingerprint": self.events.fingerprint,
            "evidence": self._evidence.tolist(),
            "num_images": self.num_images,
            "num_alarms": self.num_alarms,
            "alarm": self.alarm,
            "alarm_raised_at": self.alarm_raised_at,
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any], calibration: CalibrationScores, threshold: float) -> "Detector":
        """The detector as it was; ValueError where the state is damaged or of another calibration set."""
        detector = cls(calibration, threshold)
        try:
            if state["fingerprint"] != detector.events.fingerprint:
                raise ValueError("expected evidence of the same calibration set and levels, got that of others")
            evidence = np.asarray(state["evidence"], dtype=np.float64)
            if evidence.shape != detector._evidence.shape or not np.all((evidence >= 0) & np.isfinite(evidence)):
                raise ValueError(f"expected {detector._evidence.size} finite values of evidence, none negative")
            raised_at = state["alarm_raised_at"]
            detector.num_images, detector.num_alarms = int(state["num_images"]), int(state["num_alarms"])
            detector.alarm, detector.alarm_raised_at = (
                bool(state["alarm"]),
                None if raised_at is None else int(raised_at),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"expected a state written by to_dict, got one that lacks or garbles {error}") from error
        detector._evidence = np.minimum(evidence, HEADROOM * detector.threshold)
        return detector

    def _advance(self, outcomes: NDArray[np.intp]) -> int:
        """Take in outcomes up to the end of an alarm, or all; how many.

        R_t = P_t (1 + R_0 + sum_(s<t) 1 / P_s), P the running product: (1 + R) e unrolled, positive terms only.
        """
        products = np.multiply.accumulate(self._factors[outcomes], axis=0)  # (image, bet)
        sums = np.empty_like(products)
        sums[0] = 1 + self._evidence
        np.divide(1.0, products[:-1], out=sums[1:])
        evidence = products * np.add.accumulate(sums, axis=0)
        mean = evidence.mean(axis=1)
        if not self.alarm:
            self._raise_alarm(mean)
        num_taken = len(outcomes)
        self._evidence = np.minimum(evidence[-1], HEADROOM * self.threshold)
        if self.alarm and (end := self._end_of_alarm(mean)) is not None:
            num_taken = end
            self._evidence = np.zeros_like(self._evidence)
            self.alarm = False
        self.num_images += num_taken
        return num_taken

    def _raise_alarm(self, evidence: NDArray[np.float64]) -> None:
        reached = np.flatnonzero(evidence >= self.threshold)
        if len(reached):
            self.alarm = True
            self.num_alarms += 1
            self.alarm_raised_at = self.num_images + int(reached[0]) + 1

    def _end_of_alarm(self, evidence: NDArray[np.float64]) -> int | None:
        """How many images of the block the alarm that is on, perhaps raised in it, still takes."""
        raised = max((self.alarm_raised_at or 0) - self.num_images, 0)
        ended = np.flatnonzero(evidence[raised:] < ALARM_END * self.threshold)
        return raised + int(ended[0]) + 1 if len(ended) else None


@dataclass(frozen=True)
class Events:
    """p below `low[i]` has a share of at most `bounds[i]`, p above `high[j]` of at most `bounds[len(low) + j]`."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]
    bounds: NDArray[np.float64]

    @property
    def fingerprint(self) -> str:
        content = self.low.tobytes() + self.high.tobytes() + self.bounds.tobytes()
        return hashlib.sha256(content + repr(STAKES).encode()).hexdigest()

    def outcomes(self, p_values: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
        """Which events each p-value is: a row number of the factors. In float32, as the ring keeps them: rounding
        both sides can only lose an event, never make one."""
        p_values = np.nan_to_num(np.asarray(p_values, dtype=np.float32).ravel(), nan=0.0)
        not_low = np.searchsorted(self.low, p_values, side="right")  # level i is an event where i >= not_low
        is_high = np.searchsorted(self.high, p_values, side="left")  # level i is an event where i < is_high
        return not_low * (len(self.high) + 1) + is_high

    def counts(self, p_values: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
        """How many images, then how many of them are each event."""
        happened = self._happened()
        images = np.bincount(self.outcomes(p_values), minlength=len(happened))
        return np.concatenate([[images.sum()], images @ happened])

    def factors(self) -> NDArray[np.float64]:
        """e of every bet (column) for every outcome (row)."""
        return np.hstack([1 - stake + stake * self._happened() / self.bounds for stake in STAKES])

    def _happened(self) -> NDArray[np.bool_]:
        """Whether each event (column) has happened for every outcome (row `not_low * (len(high) + 1) + is_high`)."""
        num_low, num_high = len(self.low), len(self.high)
        not_low, is_high = np.divmod(np.arange((num_low + 1) * (num_high + 1))[:, None], num_high + 1)
        return np.hstack([np.arange(num_low) >= not_low, np.arange(num_high) < is_high])


def _watch(calibration: CalibrationScores) -> Events:
    """The events at LEVELS from either end, as far as this calibration set has ranks for them."""
    n = calibration.num_images
    ranks = calibration.ranks or range(1, n + 1)
    wanted = [rank for level in LEVELS if (rank := math.floor(level * (n + 1))) > 0]
    # of the kept ranks the nearest further out; nothing lies above the last of all
    low = sorted({bisect.bisect_right(ranks, rank) - 1 for rank in wanted})
    high = sorted({bisect.bisect_left(ranks, n + 1 - rank) for rank in wanted} - {len(ranks) - 1})
    from_the_end = [ranks[i] for i in low] + [n + 1 - ranks[i] for i in high]
    return Events(
        low=np.array([gate.p_value(calibration.scores[i], calibration) for i in low], dtype=np.float32),
        high=np.array([gate.p_value(calibration.scores[i], calibration) for i in high], dtype=np.float32),
        bounds=_bounds(from_the_end, sum(ranks[i] <= STRANGERS_LEVEL * (n + 1) for i in low), n),
    )


def _bounds(ranks: list[int], num_strangers: int, num_images: int) -> NDArray[np.float64]:
    """u of every event; the first `num_strangers` share one part of the chance of error, the others the rest."""
    errors = [STRANGERS_BUDGET / max(num_strangers, 1)] * num_strangers
    errors += [(1 - STRANGERS_BUDGET) / max(len(ranks) - num_strangers, 1)] * (len(ranks) - num_strangers)
    confidences = [1 - (1 - CONFIDENCE) * error for error in errors]
    bounds = [
        binomial.rejected_share_bound(rank, num_images, confidence)
        for rank, confidence in zip(ranks, confidences, strict=True)
    ]
    return np.maximum(bounds, MIN_BOUND)
