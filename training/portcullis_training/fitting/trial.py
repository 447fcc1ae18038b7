"""Try a run: a few of its own training steps, to learn that it works and how long it would take, before the nights."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from portcullis_training import data, methods
from portcullis_training.config import RunConfig
from portcullis_training.data.read_later import num_read_later
from portcullis_training.errors import FitError
from portcullis_training.fitting import schedule
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.fitting.distributed import training_process
from portcullis_training.fitting.encoding import BATCH_SIZE as ENCODED_AT_ONCE
from portcullis_training.fitting.encoding import Encoder
from portcullis_training.fitting.ensemble import together
from portcullis_training.fitting.fit import Fitting
from portcullis_training.fitting.preparation import refuse_what_the_method_cannot
from portcullis_training.fitting.tally import LOSS
from portcullis_training.fitting.validation import MAX_VALIDATION_BATCH
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

    classifier: Classifier
    """After the steps, for those who want to try what comes after training."""
    splits: data.Splits
    device: torch.device
    batch_size: int
    encoding_seconds: float
    """How long all photos would take through the frozen backbone; 0 where a run does not begin so."""
    later_seconds: float
    """How long calibrating and evaluating would take after fine-tuning; 0 likewise."""
    stages: tuple[TrialStage, ...]

    @property
    def num_parameters(self) -> int:
        """Numbers that are learned."""
        return sum(parameter.numel() for parameter in self.classifier.parameters())

    @property
    def num_run_steps(self) -> int:
        """Steps of the whole run."""
        return sum(stage.num_run_steps for stage in self.stages)

    @property
    def run_seconds(self) -> float:
        """How long the whole run would take, were there no limit of time."""
        return self.encoding_seconds + sum(stage.run_seconds for stage in self.stages) + self.later_seconds


def trial(config: RunConfig, num_steps: int) -> Trial:
    """Train the first steps of a run exactly as `fit` would, at most an epoch of each image size, and forget them.

    Of an ensemble those of one member, whose copies stand for the others after that.

    Images go through the frozen backbone before and through validation after them, a batch each: there, too, memory may
    run out.
    """
    torch.set_flush_denormal(True)
    refuse_what_the_method_cannot(methods.find(config.method), config)
    member = config.model_copy(update={"members": 1})
    with training_process(member) as process:
        splits = data.load(config.data, config)
        fitting = Fitting(Run(Path(), member), process, splits)
        image_seconds = _seconds_an_image(fitting) if config.frozen else 0.0
        stages = tuple(_stages(fitting, num_steps, config.members))
        fitting.validation_accuracy(_first(splits.validation, MAX_VALIDATION_BATCH))
        return Trial(
            classifier=_whole(fitting.classifier, config.members),
            splits=splits,
            device=process.device,
            batch_size=fitting.batch_size,
            encoding_seconds=image_seconds * sum(map(len, (splits.train, *splits.held_out))),
            later_seconds=image_seconds * num_read_later(splits, config),
            stages=stages,
        )


def _whole(member: Classifier, num_members: int) -> Classifier:
    return member if num_members == 1 else together([copy.deepcopy(member) for _ in range(num_members)])


def _seconds_an_image(fitting: Fitting) -> float:
    """Of encoding, by the second of two batches: the first warms up."""
    splits, device, num_workers = fitting.splits, fitting.process.device, fitting.config.num_workers
    encoder = Encoder(fitting.classifier, splits.image_spec, device, num_workers)
    sample = _first(splits.train, ENCODED_AT_ONCE)
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        encoder.encode_once(sample, "encoding a few")
        seconds.append(time.perf_counter() - started)
    return seconds[-1] / len(sample)


def _first(images: data.ImageSet, at_most: int) -> data.ImageSet:
    return images.subset(np.arange(min(at_most, len(images))))


def _stages(fitting: Fitting, num_steps: int, num_members: int) -> Iterator[TrialStage]:
    """A small image costs less than its share of the pixels says, so that every size is timed by itself."""
    epochs = range(fitting.config.epochs)
    sizes = [schedule.image_pixels(fitting.config, epoch) for epoch in epochs]
    for pixels in dict.fromkeys(sizes):
        steps = tuple(islice(_steps(fitting, sizes.index(pixels)), num_steps))
        yield TrialStage(pixels, num_members * sizes.count(pixels) * fitting.num_epoch_steps, steps)


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
