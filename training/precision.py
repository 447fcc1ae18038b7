"""Mixed precision, on CUDA only: CPUs gain nothing from it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from training.recipes import RunConfig


def amp_dtype(config: RunConfig, device: torch.device) -> torch.dtype | None:
    """The precision of the forward pass: bfloat16 or float16 on CUDA if asked for, None for float32."""
    if not config.amp or device.type != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def autocast(precision: torch.dtype | None) -> AbstractContextManager[object]:
    """Mixed precision, or nothing."""
    return nullcontext() if precision is None else torch.autocast("cuda", dtype=precision)
