"""Exponential moving average of the weights: smoother than the last step, and what is evaluated and exported.

Batch-norm statistics are averaged along with the weights they belong to; without that the averaged weights would be
run with the statistics of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

WARMUP_STEPS = 10  # early on the average follows closely, so that it forgets the random start


def averaged(classifier: nn.Module, decay: float | None) -> AveragedModel | None:
    """An average that starts at the classifier's present weights; none without a decay."""
    if decay is None:
        return None
    return AveragedModel(classifier, multi_avg_fn=_mover(decay), use_buffers=True)


def _mover(decay: float) -> Callable[..., Any]:
    @torch.no_grad()
    def move(averages: list[Tensor], currents: list[Tensor], num_averaged: Tensor | int) -> None:
        count = int(num_averaged)
        share = 1 - min(decay, (1 + count) / (WARMUP_STEPS + count))
        for average, current in zip(averages, currents, strict=True):
            if average.is_floating_point():
                average.lerp_(current, share)
            else:
                average.copy_(current)

    return move
