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

from portcullis_training import data
from portcullis_training.errors import FitError
from portcullis_training.fitting import schedule
from portcullis_training.fitting.distributed import training_process
from portcullis_training.fitting.fit import Fitting
from portcullis_training.fitting.tally import LOSS
from portcullis_training.recipes import RunConfig
from portcullis_training.runs.directory import Run


@dataclass(frozen=True)
class TrialStep:
    """One step of the trial."""

    loss: float
    seconds: float


@dataclass(frozen=True)
class TrialStage:
    """The steps on images of one size."""

    pixels: int | None
    """The side of the training images where resizing is progressive; None: as they are."""
    num_run_steps: int
    """Steps of the whole run that have this size."""
    steps: tuple[TrialStep, ...]

    @property
    def run_seconds(self) -> float:
        """How long they would take at this pace; the first step, which warms up, does not count."""
        return self.num_run_steps * statistics.median(step.seconds for step in self.steps[1:] or self.steps)


@dataclass(frozen=True)
class Trial:
    """What the steps showed. Nothing is written."""

    num_parameters: int
    batch_size: int
    stages: tuple[TrialStage, ...]

    @property
    def num_run_steps(self) -> int:
        """Steps of the whole run."""
        return sum(stage.num_run_steps for stage in self.stages)

    @property
    def run_seconds(self) -> float:
        """How long the whole run would take."""
        return sum(stage.run_seconds for stage in self.stages)


def trial(config: RunConfig, num_steps: int) -> Trial:
    """Train the first steps of a run exactly as `fit` would, at most an epoch of each image size, and forget them."""
    torch.set_flush_denormal(True)
    with training_process(config) as process:
        fitting = Fitting(Run(Path(), config), process, data.load(config.data, config))
        return Trial(
            num_parameters=sum(parameter.numel() for parameter in fitting.classifier.parameters()),
            batch_size=fitting.batch_size,
            stages=tuple(_stages(fitting, num_steps)),
        )


def _stages(fitting: Fitting, num_steps: int) -> Iterator[TrialStage]:
    """A small image costs less than its share of the pixels says, so that every size is timed by itself."""
    epochs = range(fitting.config.epochs)
    sizes = [schedule.image_pixels(fitting.config, epoch) for epoch in epochs]
    for pixels in dict.fromkeys(sizes):
        steps = tuple(islice(_steps(fitting, sizes.index(pixels)), num_steps))
        yield TrialStage(pixels, sizes.count(pixels) * fitting.num_epoch_steps, steps)


def _steps(fitting: Fitting, epoch: int) -> Iterator[TrialStep]:
    fitting.epoch, fitting.step = epoch, 0
    fitting.start_epoch()
    fitting.forward.train()
    started = time.perf_counter()
    for images, labels in fitting.batches():
        before = float(fitting.tally.sums[LOSS])
        fitting.train_step(images, labels)
        fitting.step += 1
        loss = float(fitting.tally.sums[LOSS]) - before  # reading it waits for the device, so the time is the step's
        if not math.isfinite(loss):
            raise FitError(
                f"the loss of step {fitting.step} is {loss}; is the learning rate too high, the warm-up short?"
            )
        yield TrialStep(loss, time.perf_counter() - started)
        started = time.perf_counter()
