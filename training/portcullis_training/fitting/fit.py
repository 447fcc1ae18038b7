"""The training loop: from the splits of a run to its checkpoint. READ `fit` AND `Fitting.run_epoch` FIRST."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from portcullis_training import data, methods
from portcullis_training.errors import FitError
from portcullis_training.fitting import averaging, checkpoint, precision, schedule, tally
from portcullis_training.fitting.batches import TrainingBatches
from portcullis_training.fitting.classifier import Classifier, build_classifier
from portcullis_training.fitting.determinism import deterministic_algorithms
from portcullis_training.fitting.distributed import Process, training_process
from portcullis_training.fitting.interrupt import InterruptRequest
from portcullis_training.fitting.last_pass import last_pass
from portcullis_training.fitting.memory import Portions
from portcullis_training.fitting.objective import material_of
from portcullis_training.fitting.preparation import (
    make_optimizer,
    prepare_backbone,
    refuse_what_the_method_cannot,
)
from portcullis_training.fitting.pretraining import normalisation
from portcullis_training.fitting.progress import NoProgress, Progress
from portcullis_training.fitting.resuming import restore, state_of
from portcullis_training.fitting.step import TrainingStep
from portcullis_training.fitting.tally import Tally
from portcullis_training.fitting.validation import MAX_VALIDATION_BATCH, accuracy_of
from portcullis_training.runs import atomic
from portcullis_training.runs.directory import Run

CHECK_STEPS = 20  # how often figures are read, shown and checked: each reading stalls a GPU

History = list[dict[str, float]]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came; the checkpoint is written and the run can be resumed."""


@dataclass(frozen=True)
class Start:
    """Where a run begins that does not begin afresh."""

    weights: dict[str, Tensor]
    precision: str | None


def fit(run: Run, *, resume: bool = False, show_progress: bool = True, start: Start | None = None) -> History:
    """Train a run to its end, from the start or from its checkpoint; one row of figures an epoch."""
    torch.set_flush_denormal(True)  # tiny numbers slow CPUs down a hundredfold
    saved = checkpoint.load(run.checkpoint_path) if resume else None
    with deterministic_algorithms(run.config.deterministic), training_process(run.config) as process:
        return _fit_in(process, run, saved, start, show_progress)


def _fit_in(
    process: Process, run: Run, saved: checkpoint.Checkpoint | None, start: Start | None, show_progress: bool
) -> History:
    """Apart from `fit`, so that nothing holds the model any more when the process leaves its group."""
    splits = data.load(run.config.data, run.config)
    fitting = Fitting(run, process, splits, start, None if saved is None else saved.precision)
    if saved is not None:
        restore(fitting, saved)
    with fitting.open_progress(show_progress) as progress, InterruptRequest() as interrupt:
        while fitting.epoch < run.config.epochs:
            fitting.run_epoch(progress, interrupt)
    return fitting.history


class Fitting:
    """The state of a run that is being trained, and the steps that change it."""

    def __init__(
        self,
        run: Run,
        process: Process,
        splits: data.Splits,
        start: Start | None = None,
        kept_precision: str | None = None,
    ) -> None:
        """`kept_precision` is what an earlier part of the run was trained in; by default it is chosen now."""
        config = run.config
        self.run, self.config, self.process, self.splits = run, config, process, splits
        self.method = methods.find(config.method)
        refuse_what_the_method_cannot(self.method, config)
        self.statistics = normalisation(config, splits.train)
        torch.manual_seed(config.seed)  # the same weights in every process
        classifier = build_classifier(config, splits.num_classes, self.statistics)
        prepare_backbone(classifier, config, splits)
        if start is not None:
            classifier.load_state_dict(start.weights)
        self.classifier: Classifier = process.place(classifier, has_penalty=self.method.has_penalty)
        self.average = averaging.averaged(self.classifier, config.weight_averaging)
        self.forward = process.parallel(self.classifier)
        if config.compile:
            self.forward = torch.compile(self.forward)  # type: ignore[assignment]
        self.training_batches = TrainingBatches(config, process, splits, self.statistics)
        self.batch_size, self.num_epoch_steps = self.training_batches.batch_size, self.training_batches.num_steps
        self.precision = kept_precision or (start and start.precision) or self._choose_precision()
        optimizer = make_optimizer(self.classifier, config)
        self.updating = TrainingStep(self.method, self.forward, optimizer, process, self.precision, self.classifier.std)
        self.updating.num_parts = config.accumulation
        self.augmentation_generator = torch.Generator()
        self.epoch, self.step, self.epoch_seconds = 0, 0, 0.0
        self.tally = Tally(process.device)
        self.history: History = []

    def _choose_precision(self) -> str:
        settled = precision.given(self.config, self.process.device)
        if settled is not None:
            return settled
        spec, num_images = self.splits.image_spec, len(self.training_batches.share.positions)
        shape = (-(-num_images // self.config.accumulation), 3, spec.height, spec.width)
        return precision.faster(precision.timed_step(self.classifier, shape, self.splits.num_classes), self.process)

    def run_epoch(self, progress: Progress, interrupt: InterruptRequest) -> None:
        """Train from the present step to the end of the epoch, then measure and save."""
        if self.step == 0:
            self.start_epoch()
        self.forward.train()
        is_stopping, is_alone = False, self.process.count == 1
        started = time.perf_counter() - self.epoch_seconds
        for images, labels in self.batches():
            self.train_step(images, labels)
            self.step += 1
            self.epoch_seconds = time.perf_counter() - started
            progress.advance(self.batch_size * self._cost(self.epoch))
            # Several processes can only agree to stop where all of them check.
            if self.step % CHECK_STEPS == 0 or self.step == self.num_epoch_steps or (is_alone and interrupt.is_set):
                is_stopping = self._check(progress, interrupt)
                if is_stopping and self.step < self.num_epoch_steps:
                    self._save()
                    raise Interrupted
        self._finish_epoch(progress)
        if is_stopping and self.epoch < self.config.epochs:
            raise Interrupted

    def start_epoch(self) -> None:
        """Seed everything from (seed, epoch): a run resumed here needs no generator of the one before."""
        state = np.random.SeedSequence([self.config.seed, self.epoch]).generate_state(2, np.uint64)
        self.augmentation_generator.manual_seed(int(state[0]) % 2**63)
        torch.manual_seed((int(state[1]) + self.process.rank) % 2**63)
        self.tally.sums.zero_()
        self.epoch_seconds = 0.0

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of each remaining batch of the epoch."""
        return self.training_batches.of_epoch(self.epoch, self.step, self.augmentation_generator)

    def train_step(self, images: Tensor, labels: Tensor) -> None:
        """Update the weights by this process's share of a batch, and count what came of it."""
        num_context = self.training_batches.share.num_context
        material = material_of(
            images, labels, self.splits.num_classes, self.config.mixing, self.augmentation_generator, num_context
        )
        result = self.updating.take(material, self._learning_rate())
        self.method.after_step(self.classifier, images, labels, self.process.total)
        if self.average is not None:
            self.average.update_parameters(self.classifier)
        self.tally.add(result, len(images) - num_context)

    def _learning_rate(self) -> float:
        done = self.epoch * self.num_epoch_steps + self.step
        return schedule.learning_rate(self.config, done, self.config.epochs * self.num_epoch_steps)

    def _check(self, progress: Progress, interrupt: InterruptRequest) -> bool:
        """Show the figures so far and stop on a loss that is not a number; whether any process was asked to stop."""
        requested = self.tally.sums.new_tensor([float(interrupt.is_set)])
        sums, is_requested = self.process.total(torch.cat([self.tally.sums, requested])).tensor_split([-1])
        loss = tally.mean_loss(sums)
        if not math.isfinite(loss):
            raise FitError(self._describe_divergence())
        speed = tally.num_images(sums) / self.epoch_seconds
        progress.show(self.epoch + 1, self.config.epochs, loss, tally.accuracy(sums), speed)
        return bool(is_requested > 0)

    def _describe_divergence(self) -> str:
        kept = f"; the checkpoint of epoch {self.epoch} is kept" if self.run.checkpoint_path.exists() else ""
        return (
            f"the loss is not a finite number any more in epoch {self.epoch + 1}, at or before step {self.step} "
            f"of {self.num_epoch_steps}, at learning rate {self._learning_rate():.3g}: the weights have diverged, "
            f"most often because the learning rate is too high or the warm-up too short{kept}"
        )

    def _finish_epoch(self, progress: Progress) -> None:
        sums = self.process.total(self.tally.sums)
        row = {
            "epoch": self.epoch + 1,
            "loss": tally.mean_loss(sums),
            "accuracy": tally.accuracy(sums),
            "learning_rate": self.updating.optimizer.param_groups[0]["lr"],
            "images_per_second": tally.num_images(sums) / self.epoch_seconds,
            "seconds": self.epoch_seconds,
        }
        self.history.append(row)
        self.epoch, self.step = self.epoch + 1, 0
        if self.epoch == self.config.epochs:
            self.method.finish(last_pass(self))
        self._save()  # before the validation, so that no epoch is lost to what may go wrong there
        self.validate()
        progress.log(row)

    @property
    def shipped(self) -> Classifier:
        """With the weights that would be exported."""
        if self.average is None:
            return self.classifier
        averaged = self.average.module
        assert isinstance(averaged, Classifier)
        return averaged

    def validate(self) -> None:
        """Accuracy of the weights that would be exported, after a whole epoch; for the eye only."""
        row = self.history[-1]
        if not self.process.is_main:
            row["validation_accuracy"] = 0.0
            return
        row["validation_accuracy"] = self.validation_accuracy(self.splits.validation)
        atomic.write_text(self.run.history_path, json.dumps(self.history, indent=1) + "\n")

    def validation_accuracy(self, images: data.ImageSet) -> float:
        """Share of images that the weights which would be exported answer rightly."""
        portions = Portions(min(MAX_VALIDATION_BATCH, len(self.training_batches.share.positions)))
        return accuracy_of(self.shipped, images, self.process.device, portions, self.config.num_workers)

    def _save(self) -> None:
        generators = self.process.gather(self.process.generator_state())
        if self.process.is_main:
            checkpoint.save(self.run.checkpoint_path, state_of(self, generators))
            atomic.write_text(self.run.history_path, json.dumps(self.history, indent=1) + "\n")

    def open_progress(self, is_shown: bool) -> Progress:
        """The bar and the TensorBoard log of the main process."""
        if not self.process.is_main:
            return NoProgress()
        work = [self._cost(epoch) * self.num_epoch_steps * self.batch_size for epoch in range(self.config.epochs)]
        done = sum(work[: self.epoch]) + self.step * self.batch_size * self._cost(self.epoch)
        return Progress(self.run.directory / "tensorboard", sum(work), done, self.epoch, is_shown=is_shown)

    def _cost(self, epoch: int) -> float:
        return schedule.relative_cost(self.config, epoch, self.splits.image_spec.height, self.splits.image_spec.width)
