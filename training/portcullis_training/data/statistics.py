"""Mean and deviation of the colour channels of a set of images, by which a classifier normalises them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from portcullis_training.data.image_set import ImageSet, in_order

MIN_STD = 1e-3  # a channel that never varies must not divide by zero
MAX_STATISTICS_IMAGES = 20_000  # more of them do not change the third digit


@dataclass(frozen=True)
class ChannelStatistics:
    """Mean and standard deviation of each colour channel over the training images, on the scale [0, 1]."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


def channel_statistics(images: ImageSet, num_workers: int = 0) -> ChannelStatistics:
    """Mean and standard deviation of each channel of (at most the first 20,000) training images, in [0, 1]."""
    if len(images) > MAX_STATISTICS_IMAGES:
        images = images.subset(np.linspace(0, len(images) - 1, MAX_STATISTICS_IMAGES).astype(np.int64))
    total, squares, count = np.zeros(3), np.zeros(3), 0
    for batch, _ in in_order(images, 256, num_workers):
        pixels = batch.numpy().reshape(-1, 3) / 255.0
        total += pixels.sum(axis=0)
        squares += (pixels**2).sum(axis=0)
        count += len(pixels)
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, MIN_STD**2))
    red, green, blue = (float(value) for value in mean)
    return ChannelStatistics((red, green, blue), (float(std[0]), float(std[1]), float(std[2])))
