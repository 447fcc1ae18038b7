"""Four disjoint seeded splits: train, validation for the temperature, calibration for the gate, test.

The promise of the gate needs calibration images that nothing else has seen; no function here mixes them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.bundle import ImageSpec
from training.classifier import ChannelStatistics
from training.data.image_set import ImageSet, in_order
from training.data.sources import Source
from training.errors import DataError

MIN_STD = 1e-3  # a channel that never varies must not divide by zero
MAX_STATISTICS_IMAGES = 20_000  # more of them do not change the third digit


@dataclass(frozen=True, eq=False)
class Splits:
    """The inside images of a run."""

    train: ImageSet
    validation: ImageSet
    calibration: ImageSet
    test: ImageSet
    class_names: tuple[str, ...]
    image_spec: ImageSpec
    fingerprints: dict[str, str]
    """sha256 of each split over pixels, labels and the indices that were drawn."""

    @property
    def num_classes(self) -> int:
        """How many classes the head must tell apart."""
        return len(self.class_names)

    @property
    def fingerprint(self) -> str:
        """One digest for all four splits."""
        return hashlib.sha256(
            "".join(f"{key}={self.fingerprints[key]};" for key in sorted(self.fingerprints)).encode()
        ).hexdigest()


def split(
    where: str, source: Source, *, seed: int, validation_size: int, calibration_size: int, test_size: int
) -> Splits:
    """Draw the splits without replacement; the same seed draws the same."""
    sizes = {"validation": validation_size, "calibration": calibration_size}
    if source.test is None:
        sizes["test"] = test_size
    num_held_out = sum(sizes.values())
    if num_held_out >= len(source.train):
        wanted = " + ".join(f"{name} {size}" for name, size in sizes.items())
        raise DataError(
            f"{where}: {len(source.train)} images cannot give {wanted} and leave any for training; ask for fewer"
        )
    order = np.random.default_rng(seed).permutation(len(source.train))
    drawn: dict[str, NDArray[np.int64]] = {}
    start = 0
    for name, size in sizes.items():
        drawn[name] = np.sort(order[start : start + size])
        start += size
    drawn["train"] = np.sort(order[start:])
    parts = {name: source.train.subset(indices) for name, indices in drawn.items()}
    if source.test is not None:
        parts["test"] = source.test
        drawn["test"] = np.arange(len(source.test))
    _check_classes(where, parts["train"], source.class_names)
    fingerprints = {name: fingerprint(parts[name], drawn[name]) for name in parts}
    return Splits(**parts, class_names=source.class_names, image_spec=source.image_spec, fingerprints=fingerprints)


def fingerprint(images: ImageSet, indices: NDArray[np.int64]) -> str:
    """sha256 over every image's digest, its label and the index it was drawn from."""
    digest = hashlib.sha256()
    for image_digest, label, index in zip(images.digests(), images.labels, indices, strict=True):
        digest.update(f"{image_digest} {label} {index}\n".encode())
    return digest.hexdigest()


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


def _check_classes(where: str, train: ImageSet, class_names: tuple[str, ...]) -> None:
    present = set(np.unique(train.labels).tolist())
    if len(class_names) < 2 or len(present) < 2:
        raise DataError(f"{where}: expected images of at least two classes, got only {class_names[min(present)]!r}")
    missing = [name for index, name in enumerate(class_names) if index not in present]
    if missing:
        raise DataError(f"{where}: no training image of class {missing[0]!r} ({len(missing)} classes without any)")
