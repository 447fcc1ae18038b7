"""The precision of a run's forward and backward pass: as asked for, what the GPU has, or what is faster on this CPU.

bfloat16 halves the bytes that are moved, and a CPU that multiplies in it (AVX512-BF16, AMX) does so twice as fast;
one that does not is slowed down. Networks differ too, so a CPU is timed and not asked. Weights, their updates and
the head stay in float32 in any case.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from portcullis_training.config import RunConfig
from portcullis_training.fitting.distributed import Process

FLOAT32, BFLOAT16, FLOAT16 = "float32", "bfloat16", "float16"
LEAST_GAIN = 1.1  # less is not worth the rounding, and may be chance
NUM_TIMED = 4  # steps in each precision, after one that warms up
ENOUGH_SECONDS = 30.0  # of all timed steps: a large network tells its pace sooner

Step = Callable[[str], float]
"""One training step in a precision: its seconds of processor time, which a busy neighbour does not stretch."""

logger = logging.getLogger(__name__)


def given(config: RunConfig, device: torch.device) -> str | None:
    """The precision that config and device settle; None where it has to be measured."""
    if config.precision != "auto":
        return config.precision
    if device.type == "cpu":
        return None
    if device.type != "cuda":  # Apple's GPUs gain little from it
        return FLOAT32
    return BFLOAT16 if torch.cuda.is_bf16_supported() else FLOAT16


def faster(step: Step, process: Process) -> str:
    """float32 or bfloat16, by the quickest of a few steps in each, taken in turn; all processes choose alike."""
    spent: dict[str, list[float]] = {FLOAT32: [], BFLOAT16: []}
    for name in spent:
        step(name)
    while len(spent[FLOAT32]) < NUM_TIMED and sum(map(sum, spent.values())) < ENOUGH_SECONDS:
        for name, seconds in spent.items():
            seconds.append(_over_all(process, step(name)))
    best = {name: min(seconds) for name, seconds in spent.items()}
    chosen = BFLOAT16 if best[FLOAT32] > LEAST_GAIN * best[BFLOAT16] else FLOAT32
    if process.is_main:
        timed = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in best.items())
        logger.info("precision: %s; processor time of a step: %s", chosen, timed)
    return chosen


def _over_all(process: Process, seconds: float) -> float:
    return float(process.total(torch.tensor([seconds], dtype=torch.float64, device=process.device)))


def timed_step(classifier: nn.Module, shape: tuple[int, ...], num_classes: int) -> Step:
    """Forward and backward of a copy of the classifier on noise; draws nothing from the run's generators."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(shape, generator=generator).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(num_classes, shape[:1], generator=generator)
    tried = copy.deepcopy(classifier).train()

    def step(precision: str) -> float:
        started = time.process_time()
        with torch.random.fork_rng(devices=[]):  # dropout draws from the global one
            with autocast(precision, torch.device("cpu")):
                loss = nn.functional.cross_entropy(tried(images), labels)
            loss.backward()
        return time.process_time() - started

    return step


def full_precision() -> AbstractContextManager[object]:
    """Convolutions in float32 on CUDA too, where cuDNN would round to 10 bits: for what the gate is calibrated on."""
    cudnn = torch.backends.cudnn
    return cudnn.flags(enabled=True, benchmark=cudnn.benchmark, deterministic=cudnn.deterministic, allow_tf32=False)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Mixed precision, or nothing."""
    if precision == FLOAT32:
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16 if precision == BFLOAT16 else torch.float16)
