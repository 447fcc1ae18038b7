"""Try a run: a few of its own training steps, to learn that it works and how long it would take, before the nights."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from training import data
from training.distributed import training_process
from training.errors import FitError
from training.fit import LOSS, Fitting
from training.recipes import RunConfig
from training.runs import Run


@dataclass(frozen=True)
class TrialStep:
    """One step of the trial."""

    loss: float
    seconds: float


@dataclass(frozen=True)
class Trial:
    """What the steps showed. Nothing is written."""

    num_parameters: int
    batch_size: int
    num_run_steps: int
    """Steps of the whole run."""
    steps: tuple[TrialStep, ...]

    @property
    def run_seconds(self) -> float:
        """How long the whole run would take at this pace; the first step, which warms up, does not count."""
        return self.num_run_steps * statistics.median(step.seconds for step in self.steps[1:] or self.steps)


def trial(config: RunConfig, num_steps: int) -> Trial:
    """Train the first steps of a run exactly as `fit` would, at most one epoch of them, and forget the weights."""
    torch.set_flush_denormal(True)
    with training_process(config) as process:
        fitting = Fitting(Run(Path(), config), process, data.load(config.data, config))
        return Trial(
            num_parameters=sum(parameter.numel() for parameter in fitting.classifier.parameters()),
            batch_size=fitting.batch_size,
            num_run_steps=config.epochs * fitting.num_epoch_steps,
            steps=tuple(islice(_steps(fitting), num_steps)),
        )


def _steps(fitting: Fitting) -> Iterator[TrialStep]:
    fitting.start_epoch()
    fitting.forward.train()
    started = time.perf_counter()
    for images, labels in fitting.batches():
        before = float(fitting.sums[LOSS])
        fitting.train_step(images, labels)
        fitting.step += 1
        loss = float(fitting.sums[LOSS]) - before  # reading it waits for the device, so the time is the step's
        if not math.isfinite(loss):
            raise FitError(
                f"the loss of step {fitting.step} is {loss}; is the learning rate too high, the warm-up short?"
            )
        yield TrialStep(loss, time.perf_counter() - started)
        started = time.perf_counter()
