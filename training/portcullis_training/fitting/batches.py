"""The training images of an epoch in batches: their order, their augmentation, their size.

All of it follows from the config, the epoch and one generator; a run that is resumed sees what it would have seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from portcullis_training import data
from portcullis_training.config import RunConfig
from portcullis_training.data import augmentation
from portcullis_training.data.photo_crops import PhotoCrops, cropped_batches
from portcullis_training.data.statistics import ChannelStatistics
from portcullis_training.errors import ConfigError
from portcullis_training.fitting import schedule
from portcullis_training.fitting.distributed import Process

Positions = NDArray[np.int64]


class TrainingBatches:
    """Batches of the training images; knows nothing of what is done with them."""

    def __init__(self, config: RunConfig, process: Process, splits: data.Splits, statistics: ChannelStatistics) -> None:
        self._config, self._process = config, process
        self._images = splits.train
        self._full_size = (splits.image_spec.height, splits.image_spec.width)
        self._refuse_what_does_not_fit()
        self._mean = statistics.mean
        self.batch_size = process.batch_size(config, len(self._images))
        self.share = process.share(self.batch_size, is_fractional=config.is_fractional)
        self.num_steps = len(self._images) // self.batch_size
        self._is_mirrored_first = np.random.default_rng([config.seed, 0, 1]).random(len(self._images)) < 0.5

    def of_epoch(self, epoch: int, first_step: int, generator: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of each batch from a step on, augmented: float32 NCHW in [0, 1]."""
        pixels = schedule.image_pixels(self._config, epoch)
        positions = [batch[self.share.positions] for batch in self._order(epoch)[first_step:]]
        read = self._read(positions, epoch)
        for places, (images, labels) in zip(positions, read, strict=True):
            augmented = self._augmented(images.to(self._process.device, non_blocking=True), places, epoch, generator)
            resized = augmented if pixels is None else augmentation.resize(augmented, pixels)
            yield resized, labels.to(self._process.device, non_blocking=True)

    def _refuse_what_does_not_fit(self) -> None:
        side = min(self._full_size)
        for name in ("crop_pixels", "cutout_pixels"):
            if (getattr(self._config, name) or 0) >= side:
                raise ConfigError(f"{name}: expected fewer than the {side} pixels of an image's side")

    def _order(self, epoch: int) -> Positions:
        """(steps, batch) positions of the epoch; a last batch that is not full is left for another epoch."""
        random = np.random.default_rng([self._config.seed, epoch])
        order = shown_order(self._images.labels, self._config.class_balance, random)
        return order[: self.num_steps * self.batch_size].reshape(self.num_steps, self.batch_size)

    def _read(self, positions: list[Positions], epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches as they come; files are cut by whoever decodes them where boxes are random."""
        config = self._config
        if not self._crops_photos:
            return self._images.batches(positions, config.num_workers)
        assert isinstance(self._images, data.FileImages)
        seeds = np.random.default_rng([config.seed, epoch, 2]).integers(2**62, size=len(self._images))
        crops = PhotoCrops(config.crop_share, config.rand_augment)
        return cropped_batches(self._images, crops, positions, seeds, config.num_workers)

    @property
    def _crops_photos(self) -> bool:
        return isinstance(self._images, data.FileImages) and self._config.augmentation == "resized-crop-flip"

    def _augmented(self, images: Tensor, places: Positions, epoch: int, generator: Generator) -> Tensor:
        config, share = self._config, torch.from_numpy(self.share.positions)
        crops = augmentation.draw(self.batch_size, generator).part(share)
        if config.alternating_flips:
            is_mirrored = self._is_mirrored_first[places] ^ bool(epoch % 2)
            crops = dataclasses.replace(crops, flips=torch.from_numpy(is_mirrored))
        kind = "none" if self._crops_photos else config.augmentation  # they come as they should be
        floats = data.to_float(augmentation.augment(kind, images, crops, self._full_size, config.crop_pixels))
        if config.cutout_pixels == 0:
            return floats
        squares = torch.rand(2, self.batch_size, generator=generator)[:, share]
        return augmentation.cut_out(floats, squares, config.cutout_pixels, self._mean)


def shown_order(labels: Positions, class_balance: float, random: np.random.Generator) -> Positions:
    """The order of one epoch: every image once, or drawn so that a class of n images is shown n^(1 − balance) often."""
    if class_balance == 0:
        return random.permutation(len(labels))
    weights = np.bincount(labels)[labels] ** -class_balance
    return random.choice(len(labels), size=len(labels), p=weights / weights.sum())
