"""Sets of labelled images: held in memory as one array, or as files that worker processes decode when needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from portcullis.bundle.devices import num_cores
from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.preprocess import Pixels, decode
from portcullis.errors import PortcullisError
from portcullis_training.errors import DataError

Labels = NDArray[np.int64]
Indices = NDArray[np.int64]


class ImageSet(Protocol):
    """Labelled images of one geometry."""

    @property
    def labels(self) -> Labels:
        """The class index of each image."""

    def __len__(self) -> int: ...

    def subset(self, indices: Indices) -> ImageSet:
        """Some of the images, in the order asked for."""

    def batches(self, positions: Sequence[Indices], num_workers: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """For each array of positions, (uint8 NHWC images, int64 labels)."""

    def digests(self) -> list[str]:
        """A digest of each image, in order."""


def in_order(images: ImageSet, batch_size: int, num_workers: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """All images once, in order: (uint8 NHWC images, int64 labels)."""
    positions = [np.arange(start, min(start + batch_size, len(images))) for start in range(0, len(images), batch_size)]
    return images.batches(positions, num_workers)


def in_workers(
    dataset: Dataset[tuple[Tensor, int]], batches: Sequence[list[Any]], num_workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """What the data set has under each batch of keys, made in worker processes, no more of them than cores."""
    yield from DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=min(num_workers, num_cores()),
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),  # a loader draws a seed, which would shift dropout in a resumed run
    )


def to_float(images: Tensor) -> Tensor:
    """uint8 NHWC → float32 NCHW in [0, 1], channels_last in memory: no pixel is moved.

    The cast comes first because TensorRT takes bytes only where a cast follows at once; it would leave any other first
    step, and the copy of the images that goes with it, to another provider.
    """
    return images.float().permute(0, 3, 1, 2).div_(255)


def as_array(images: ImageSet, batch_size: int = 256, num_workers: int = 0) -> Pixels:
    """All images as one uint8 NHWC array; for sets that fit in memory."""
    if isinstance(images, ArrayImages):
        return images.images
    return np.concatenate([batch.numpy() for batch, _ in in_order(images, batch_size, num_workers)])


@dataclass(frozen=True, eq=False)
class ArrayImages:
    """Images in memory: uint8 (N, H, W, 3)."""

    images: Pixels
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Indices) -> ArrayImages:
        """Some of the images, copied."""
        return ArrayImages(self.images[indices], self.labels[indices])

    def batches(self, positions: Sequence[Indices], num_workers: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Gathered by index; no worker would be faster than one copy."""
        for batch in positions:
            yield torch.from_numpy(self.images[batch]), torch.from_numpy(self.labels[batch])

    def digests(self) -> list[str]:
        """sha256 of the pixels of each image."""
        return [hashlib.sha256(image.tobytes()).hexdigest() for image in self.images]


@dataclass(frozen=True, eq=False)
class FileImages:
    """Images in files, decoded when they are needed by the function that the service uses."""

    paths: tuple[Path, ...]
    labels: Labels
    file_digests: tuple[str, ...]
    spec: ImageSpec

    def __len__(self) -> int:
        return len(self.paths)

    def subset(self, indices: Indices) -> FileImages:
        """Some of the files."""
        paths = tuple(self.paths[index] for index in indices)
        digests = tuple(self.file_digests[index] for index in indices)
        return FileImages(paths, self.labels[indices], digests, self.spec)

    def with_spec(self, spec: ImageSpec) -> FileImages:
        """The same files in another geometry."""
        return replace(self, spec=spec)

    def batches(self, positions: Sequence[Indices], num_workers: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Decoded in worker processes, delivered in the order asked for."""
        decoding = _Decoding(self.paths, self.labels, self.spec)
        yield from in_workers(decoding, [batch.tolist() for batch in positions], num_workers)

    def digests(self) -> list[str]:
        """sha256 of the bytes of each file."""
        return list(self.file_digests)


class _Decoding(Dataset[tuple[Tensor, int]]):
    """One decoded file at a time, in whatever process asks."""

    def __init__(self, paths: tuple[Path, ...], labels: Labels, spec: ImageSpec) -> None:
        self.paths = paths
        self.labels = labels
        self.spec = spec

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        try:
            pixels = decode(self.paths[index].read_bytes(), self.spec)
        except (PortcullisError, OSError) as error:  # it was readable when the folder was checked
            raise DataError(f"{self.paths[index]}: changed or removed while it was in use: {error}") from None
        return torch.from_numpy(np.array(pixels)), int(self.labels[index])
