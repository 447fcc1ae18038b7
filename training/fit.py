"""The training loop: from the splits of a run to its checkpoint. READ `fit` AND `Fitting.run_epoch` FIRST."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training import atomic, augment, averaging, checkpoint, data, methods, schedule
from training.checkpoint import Checkpoint
from training.classifier import Classifier, build_classifier
from training.distributed import Process, training_process
from training.errors import CheckpointError, FitError
from training.interrupt import InterruptRequest
from training.objective import objective
from training.precision import amp_dtype, autocast
from training.preparation import parameter_groups, prepare_backbone, training_images
from training.progress import NoProgress, Progress
from training.runs import Run
from training.validation import accuracy_of

CHECK_STEPS = 20  # how often figures are read, shown and checked: each reading stalls a GPU
LOSS, CORRECT, COUNTED, STEPS, IMAGES = range(5)  # places in the running sums

History = list[dict[str, float]]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came; the checkpoint is written and the run can be resumed."""


def fit(run: Run, *, resume: bool = False, show_progress: bool = True) -> History:
    """Train a run to its end, from the start or from its checkpoint; one row of figures an epoch."""
    torch.set_flush_denormal(True)  # tiny numbers slow CPUs down a hundredfold
    saved = checkpoint.load(run.checkpoint_path) if resume else None
    with training_process(run.config) as process:
        splits = data.load(run.config.data, run.config)
        fitting = Fitting(run, process, splits)
        if saved is not None:
            fitting.restore(saved)
        with fitting.open_progress(show_progress) as progress, InterruptRequest() as interrupt:
            while fitting.epoch < run.config.epochs:
                fitting.run_epoch(progress, interrupt)
        return fitting.history


class Fitting:
    """The state of a run that is being trained, and the steps that change it."""

    def __init__(self, run: Run, process: Process, splits: data.Splits) -> None:
        config = run.config
        self.run, self.config, self.process, self.splits = run, config, process, splits
        self.statistics = data.channel_statistics(splits.train, config.num_workers)
        torch.manual_seed(config.seed)  # the same weights in every process
        classifier = build_classifier(config, splits.num_classes, self.statistics)
        prepare_backbone(classifier, splits.train)
        self.classifier: Classifier = process.place(classifier)
        self.average = averaging.averaged(self.classifier, config.weight_averaging)
        self.forward = process.parallel(self.classifier)
        if config.compile:
            self.forward = torch.compile(self.forward)  # type: ignore[assignment]
        self.method = methods.find(config.method)
        self.optimizer = torch.optim.SGD(
            parameter_groups(self.classifier, config), lr=config.learning_rate, momentum=config.momentum, nesterov=True
        )
        self.precision = amp_dtype(config, process.device)
        self.scaler = torch.amp.GradScaler(process.device.type, enabled=self.precision == torch.float16)
        self.batch_size = min(config.batch_size, len(splits.train) // process.count * process.count)
        self.num_epoch_steps = len(splits.train) // self.batch_size
        self.train_images = training_images(splits, config)
        self.augmentation_generator = torch.Generator()
        self.epoch, self.step, self.epoch_seconds = 0, 0, 0.0
        self.sums = torch.zeros(5, dtype=torch.float64, device=process.device)
        self.history: History = []

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
        self.sums.zero_()
        self.epoch_seconds = 0.0

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of each remaining batch, augmented: float32 NCHW in [0, 1]."""
        size = (self.splits.image_spec.height, self.splits.image_spec.width)
        pixels = schedule.image_pixels(self.config, self.epoch)
        start, stop = self.process.share(self.batch_size)
        positions = [batch[start:stop] for batch in self._order()[self.step :]]
        for images, labels in self.train_images.batches(positions, self.config.num_workers):
            images = images.to(self.process.device, non_blocking=True)
            crops = augment.draw(self.batch_size, self.augmentation_generator).part(start, stop)
            images = data.to_float(augment.augment(self.config.augmentation, images, crops, size))
            images = images if pixels is None else augment.resize(images, pixels)
            yield images, labels.to(self.process.device, non_blocking=True)

    def _order(self) -> NDArray[np.int64]:
        """(steps, batch) positions of the epoch; a last batch that is not full is left for another epoch."""
        order = np.random.default_rng([self.config.seed, self.epoch]).permutation(len(self.train_images))
        return order[: self.num_epoch_steps * self.batch_size].reshape(self.num_epoch_steps, self.batch_size)

    def train_step(self, images: Tensor, labels: Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate()
        with autocast(self.precision):
            result = objective(
                self.method, self.forward, images, labels, fractional_regulariser=self.config.fractional_regulariser
            )
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(result.loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update_parameters(self.classifier)
        self.sums[LOSS] += result.loss.detach()
        self.sums[CORRECT] += result.num_correct
        self.sums[COUNTED:] += torch.tensor([result.num_counted, 1, len(images)], device=self.sums.device)

    def _learning_rate(self) -> float:
        done = self.epoch * self.num_epoch_steps + self.step
        return schedule.learning_rate(self.config, done, self.config.epochs * self.num_epoch_steps)

    def _check(self, progress: Progress, interrupt: InterruptRequest) -> bool:
        """Show the figures so far and stop on a loss that is not a number; whether any process was asked to stop."""
        requested = torch.tensor([float(interrupt.is_set)], dtype=torch.float64, device=self.sums.device)
        totals = self.process.total(torch.cat([self.sums, requested]))
        loss, accuracy = _figures(totals)
        if not math.isfinite(loss):
            raise FitError(self._describe_divergence())
        progress.show(self.epoch + 1, self.config.epochs, loss, accuracy, float(totals[IMAGES]) / self.epoch_seconds)
        return bool(totals[-1] > 0)

    def _describe_divergence(self) -> str:
        kept = f"; the checkpoint of epoch {self.epoch} is kept" if self.run.checkpoint_path.exists() else ""
        return (
            f"the loss is not a finite number any more in epoch {self.epoch + 1}, at or before step {self.step} "
            f"of {self.num_epoch_steps}, at learning rate {self._learning_rate():.3g}: the weights have diverged, "
            f"most often because the learning rate is too high or the warm-up too short{kept}"
        )

    def _finish_epoch(self, progress: Progress) -> None:
        totals = self.process.total(self.sums)
        loss, accuracy = _figures(totals)
        row = {
            "epoch": self.epoch + 1,
            "loss": loss,
            "accuracy": accuracy,
            "validation_accuracy": self._validation_accuracy() if self.process.is_main else 0.0,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "images_per_second": float(totals[IMAGES]) / self.epoch_seconds,
            "seconds": self.epoch_seconds,
        }
        self.history.append(row)
        self.epoch, self.step = self.epoch + 1, 0
        self._save()
        progress.log(row)

    def _validation_accuracy(self) -> float:
        """Of the weights that would be exported; for the eye only, nothing is chosen by it."""
        classifier = self.classifier if self.average is None else self.average
        return accuracy_of(classifier, self.splits.validation, self.process.device, self.config.num_workers)

    def _save(self) -> None:
        generators = self.process.gather(self.process.generator_state())
        if self.process.is_main:
            checkpoint.save(self.run.checkpoint_path, self._state(generators))
            atomic.write_text(self.run.history_path, json.dumps(self.history, indent=1) + "\n")

    def _state(self, generators: list[Tensor]) -> Checkpoint:
        return Checkpoint(
            epoch=self.epoch,
            step=self.step,
            classifier=self.classifier.state_dict(),
            averaged=None if self.average is None else self.average.state_dict(),
            optimizer=self.optimizer.state_dict(),
            scaler=self.scaler.state_dict(),
            augmentation_generator=self.augmentation_generator.get_state(),
            generators=generators,
            sums=self.sums,
            epoch_seconds=self.epoch_seconds,
            history=self.history,
            class_names=list(self.splits.class_names),
            mean=list(self.statistics.mean),
            std=list(self.statistics.std),
            fingerprints=self.splits.fingerprints,
            image_spec=self.splits.image_spec.model_dump(),
        )

    def restore(self, saved: Checkpoint) -> None:
        """Go back to where a checkpoint was written."""
        if saved.fingerprints != self.splits.fingerprints:
            raise CheckpointError(f"the images of {self.config.data} are not those that {self.run.checkpoint_path} saw")
        if len(saved.generators) != self.process.count:
            raise CheckpointError(
                f"the run was started with {len(saved.generators)} processes, now {self.process.count}"
            )
        self.classifier.load_state_dict(saved.classifier)
        if self.average is not None and saved.averaged is not None:
            self.average.load_state_dict(saved.averaged)
        self.optimizer.load_state_dict(saved.optimizer)
        self.scaler.load_state_dict(saved.scaler)
        self.augmentation_generator.set_state(saved.augmentation_generator)
        self.process.restore_generator(saved.generators)
        self.sums.copy_(saved.sums)
        self.epoch, self.step, self.epoch_seconds = saved.epoch, saved.step, saved.epoch_seconds
        self.history = list(saved.history)

    def open_progress(self, is_shown: bool) -> Progress:
        """The bar and the TensorBoard log of the main process."""
        if not self.process.is_main:
            return NoProgress()
        work = [self._cost(epoch) * self.num_epoch_steps * self.batch_size for epoch in range(self.config.epochs)]
        done = sum(work[: self.epoch]) + self.step * self.batch_size * self._cost(self.epoch)
        return Progress(self.run.directory / "tensorboard", sum(work), done, self.epoch, is_shown=is_shown)

    def _cost(self, epoch: int) -> float:
        return schedule.relative_cost(self.config, epoch, self.splits.image_spec.height, self.splits.image_spec.width)


def _figures(totals: Tensor) -> tuple[float, float]:
    """Mean loss of a step and accuracy over the images counted, out of the sums over all processes."""
    return float(totals[LOSS] / totals[STEPS]), float(totals[CORRECT] / totals[COUNTED].clamp(min=1))
