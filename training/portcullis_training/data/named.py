"""The well-known sets by name, through torchvision, which downloads them where it can."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from portcullis_training.data.image_set import ArrayImages
from portcullis_training.data.sources import (
    ArraySource,
    check_images,
    check_labels,
    from_arrays,
)
from portcullis_training.errors import DataError
from portcullis_training.runs.exclusive import alone

NAMED = ("cifar10", "cifar100", "svhn", "mnist", "fashion_mnist")


def data_directory() -> Path:
    """Where downloads are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PORTCULLIS_DATA") or Path(cache) / "portcullis" / "data")


def read_named(name: str) -> ArraySource:
    """One of NAMED, downloaded if it is not there yet: by one process, while the others of torchrun wait."""
    try:
        with alone(data_directory() / name):
            train, test = _open(name, is_train=True), _open(name, is_train=False)
    except OSError as error:
        raise DataError(f"{name}: {data_directory()} cannot be written: {error}; set PORTCULLIS_DATA") from None
    class_names = tuple(str(label) for label in getattr(train, "classes", range(10)))
    parts = [_to_images(name, part, len(class_names)) for part in (train, test)]
    return from_arrays(name, parts[0], parts[1], class_names)


def _open(name: str, *, is_train: bool) -> Any:
    from portcullis_training import torchvision_ops  # noqa: F401  before torchvision
    from torchvision import datasets  # isort: skip

    root = data_directory()
    try:
        if name == "svhn":
            return datasets.SVHN(str(root / name), split="train" if is_train else "test", download=True)
        factory = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100,
                   "mnist": datasets.MNIST, "fashion_mnist": datasets.FashionMNIST}[name]  # fmt: skip
        return factory(str(root / name), train=is_train, download=True)
    except (OSError, RuntimeError) as error:  # URLError is an OSError; RuntimeError comes after all mirrors
        reason = " ".join(str(error).split())
        raise DataError(
            f"{name}: not in {root} and could not be downloaded ({reason}); fetch it on a machine with a network "
            f"and set PORTCULLIS_DATA, or use folder:, idx: or npz: with files of your own"
        ) from None


def _to_images(name: str, part: Any, num_classes: int) -> ArrayImages:
    pixels = np.asarray(part.data)
    if name == "svhn":
        pixels = pixels.transpose(0, 2, 3, 1)  # stored as NCHW
    labels = np.asarray(part.labels if name == "svhn" else part.targets)
    return ArrayImages(check_images(name, pixels), check_labels(name, labels, len(pixels), num_classes))
