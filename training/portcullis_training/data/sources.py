"""What a data spec yields before it is split, and the checks that every source goes through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.preprocess import Pixels
from portcullis_training.data.image_set import ArrayImages, ImageSet
from portcullis_training.errors import DataError


@dataclass(frozen=True, eq=False)
class Source:
    """Labelled images, with a test set of their own or without."""

    train: ImageSet
    test: ImageSet | None
    class_names: tuple[str, ...]
    image_spec: ImageSpec
    validation: ImageSet | None = None
    """Validation images of their own, where the data come with them."""
    groups: NDArray[np.int64] | None = None
    """By training image: near-duplicates have the same number, and no split divides them. None: nobody looked."""


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """A source that is held in memory."""

    train: ArrayImages
    test: ArrayImages | None


def from_arrays(where: str, train: ArrayImages, test: ArrayImages | None, class_names: tuple[str, ...]) -> ArraySource:
    """A source whose geometry is that of its arrays."""
    height, width = train.images.shape[1:3]
    if test is not None and test.images.shape[1:3] != (height, width):
        raise DataError(f"{where}: training images are {height}x{width}, test images {test.images.shape[1:3]}")
    return ArraySource(train, test, class_names, ImageSpec(height=height, width=width))


def check_images(where: str, images: NDArray[Any]) -> Pixels:
    """uint8 (N, H, W, 3) out of grey or RGB, uint8 or float in [0, 1]; anything else is refused."""
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3) or 0 in images.shape[1:]:
        raise DataError(f"{where}: expected images of shape (N, H, W) or (N, H, W, 3), got {images.shape}")
    if len(images) == 0:
        raise DataError(f"{where}: holds no images")
    pixels = _to_uint8(where, images)
    return pixels if pixels.ndim == 4 else np.repeat(pixels[..., None], 3, axis=3)


def _to_uint8(where: str, images: NDArray[Any]) -> Pixels:
    if images.dtype == np.uint8:
        return images
    if not np.issubdtype(images.dtype, np.floating):
        raise DataError(f"{where}: expected uint8 or floating-point images in [0, 1], got {images.dtype}")
    bad = np.flatnonzero(~np.isfinite(images).all(axis=tuple(range(1, images.ndim))))
    if len(bad):
        raise DataError(f"{where}: {len(bad)} images hold NaN or infinite pixels, the first at index {bad[0]}")
    if images.min() < 0 or images.max() > 1:
        raise DataError(f"{where}: expected floating-point images in [0, 1], got [{images.min()}, {images.max()}]")
    return np.round(images * 255).astype(np.uint8)


def check_labels(where: str, labels: NDArray[Any], num_images: int, num_classes: int | None) -> NDArray[np.int64]:
    """int64 labels, one an image, each naming a class."""
    if labels.shape != (num_images,):
        raise DataError(f"{where}: expected {num_images} labels, one an image, got shape {labels.shape}")
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{where}: expected whole numbers as labels, got {labels.dtype}")
    wanted = "at least 0" if num_classes is None else f"from 0 to {num_classes - 1}"
    bad = np.flatnonzero((labels < 0) | (labels >= (num_classes if num_classes is not None else np.inf)))
    if len(bad):
        raise DataError(f"{where}: expected labels {wanted}, got {labels[bad[0]]} at index {bad[0]}")
    return labels.astype(np.int64)
