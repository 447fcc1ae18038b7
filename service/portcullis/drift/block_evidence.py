"""Evidence of drift from counts alone: the same bets as in evidence.py, taken in by blocks of images in any order.

Knows counts only: no p-values, clocks, instances or databases. docs/drift.md tells the same with less mathematics.

**Block.** Images 1, 2, ... are cut into blocks; the end of a block may depend on all that came up to there. Per bet
e_block is the product of the e of its images: with k events among n images (1 - f + f/u)^k (1 - f)^(n - k), so counts
suffice and the order within the block is nothing. The product since the block's beginning is a supermartingale that
begins with 1, stopped at the block's end: E[e_block | before the block] <= 1.

**Sum over start times.** R <- (R + w) e_block, w starts at the beginning of the block. To count the block's own
images there would be wrong: n is known at its end only, and where it depends on the outcomes (a client that tries
again when it was rejected) E[n e_block] may exceed E[n]. So w is the number of images in the block *before*, which is
known: each image starts its bets at the next block. The first block has w = 1. Hence E[R_t | before] <= R_(t-1) + w_t,
and with W_t the sum of all w, R_t - W_t is a supermartingale; W_t = 1 + N_(t-1) <= N_t, N the images so far, as no
block is empty. Stop at the first block T with R_T >= A: A P(T <= m) <= E[R_min(T,m)] <= E[W_min(T,m)] <=
E[N_min(T,m)], and with m without end E[N_T] >= A: in images, as ever. A smaller w or R keeps all this: the cap on
w, the cap on R, the new beginning with R = 0 and w = 1 at the end of an alarm.

**Whatever the order.** For independent images any order is one in which each has its share given those before, so
long as the order does not look at outcomes that were not taken in yet: instances may be late, or come all at once.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from portcullis.drift.evidence import ALARM_END, HEADROOM, STAKES

MAX_STARTS = 0.01
"""Starts of one block at the most, as a part of A: a block of A images would else be an alarm by itself."""

Count = Annotated[int, Field(ge=0)]


class BlockEvidence(BaseModel):
    """R of every bet, and the alarm, as they are kept from block to block."""

    model_config = ConfigDict(frozen=True)  # what a newer service keeps beside is none of our business

    bounds: tuple[Annotated[float, Field(gt=0, le=1)], ...]
    """u of every event."""
    threshold: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """A, in images."""
    evidence: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]
    """R of every bet: all events with the first stake, then all with the next."""
    starts: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """w of the next block."""
    num_images: Count = 0
    num_alarms: Count = 0
    alarm: bool = False
    alarm_raised_at: Count | None = None
    """How many images since the beginning at the end of the block that raised the latest alarm."""

    @property
    def evidence_log10(self) -> float:
        """log10 of the mean R, 0 where there is none."""
        return math.log10(max(float(np.mean(self.evidence)), 1.0))


def begin(bounds: Sequence[float], threshold: float) -> BlockEvidence:
    """No images yet."""
    return BlockEvidence(bounds=tuple(bounds), threshold=threshold, evidence=(0.0,) * (len(bounds) * len(STAKES)))


def after(before: BlockEvidence, counts: NDArray[np.int64]) -> BlockEvidence:
    """Take in one block: how many images, then how many of them were each event. An empty block changes nothing."""
    num_images = int(counts[0])
    if num_images == 0:
        return before
    evidence = _bet(before, counts)
    mean, num_total = float(evidence.mean()), before.num_images + num_images
    update = {
        "evidence": tuple(evidence.tolist()),
        "starts": max(1.0, min(float(num_images), MAX_STARTS * before.threshold)),
        "num_images": num_total,
    }
    if not before.alarm and mean >= before.threshold:
        update |= {"alarm": True, "num_alarms": before.num_alarms + 1, "alarm_raised_at": num_total}
    elif before.alarm and mean < ALARM_END * before.threshold:
        update |= {"alarm": False, "evidence": (0.0,) * len(evidence), "starts": 1.0}
    return before.model_copy(update=update)


def _bet(before: BlockEvidence, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """(R + w) e_block of every bet, in logarithms: a block may hold any number of images."""
    bounds, num_images, happened = np.array(before.bounds), counts[0], counts[1:]
    log_factor = np.hstack(
        [happened * np.log1p(stake * (1 / bounds - 1)) + (num_images - happened) * np.log1p(-stake) for stake in STAKES]
    )
    log_evidence = np.log(np.array(before.evidence) + before.starts) + log_factor
    capped: NDArray[np.float64] = np.exp(np.minimum(log_evidence, math.log(HEADROOM * before.threshold)))
    return capped
