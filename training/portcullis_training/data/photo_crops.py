"""Random resized crops from the photo itself, in whatever process decodes it: no pixel is lost to a crop before.

What happens to a photo follows from one number, so that a resumed run, and any number of workers, see the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from portcullis.bundle.preprocess import open_picture
from portcullis.errors import PortcullisError
from portcullis_training.data.image_set import FileImages, Indices, Labels, in_workers
from portcullis_training.errors import DataError

LOG_RATIOS = (math.log(3 / 4), math.log(4 / 3))
NARROWEST = 0.75  # of the side of a square box, for a box of the same area: how much larger the photo must be decoded
MAGNITUDE = 9  # of RandAugment, out of 30
_RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class PhotoCrops:
    """How training photos are cut and changed."""

    smallest_share: float
    """Of the photo's area, kept by a crop."""
    num_operations: int
    """Of RandAugment, applied after the crop; 0 for none."""


def cropped_batches(
    images: FileImages, crops: PhotoCrops, positions: Sequence[Indices], seeds: NDArray[np.int64], num_workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each array of positions, (uint8 NHWC images of the set's size, int64 labels); `seeds` has one an image."""
    keys = [[(int(index), int(seeds[index])) for index in batch] for batch in positions]
    yield from in_workers(_Cropping(images, crops), keys, num_workers)


def crop(payload: bytes, seed: int, crops: PhotoCrops, size: tuple[int, int], interpolation: str) -> Image.Image:
    """A random box of the photo, resized to (height, width), mirrored half of the time, and changed by RandAugment."""
    random = np.random.default_rng(seed)
    share, log_ratio = random.uniform(crops.smallest_share, 1.0), random.uniform(*LOG_RATIOS)
    needed = math.ceil(max(size) / (math.sqrt(share) * NARROWEST))
    photo = open_picture(payload, needed)
    box = _box(photo.size, share, math.exp(log_ratio), random)
    cut = photo.resize((size[1], size[0]), _RESAMPLING[interpolation], box=box)
    if random.random() < 0.5:
        cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return cut if crops.num_operations == 0 else _changed(cut, crops.num_operations, int(random.integers(2**62)))


def _box(
    photo: tuple[int, int], share: float, ratio: float, random: np.random.Generator
) -> tuple[float, float, float, float]:
    """Left, top, right, bottom of a box of this share of the area and this ratio, as far as the photo allows it."""
    width, height = photo
    area = share * width * height
    box_width, box_height = min(width, math.sqrt(area * ratio)), min(height, math.sqrt(area / ratio))
    left, top = random.uniform(0, width - box_width), random.uniform(0, height - box_height)
    return left, top, left + box_width, top + box_height


def _changed(picture: Image.Image, num_operations: int, seed: int) -> Image.Image:
    with torch.random.fork_rng(devices=[]):  # torchvision draws from the global generator, which is dropout's
        torch.manual_seed(seed)
        changed: Image.Image = _rand_augment(num_operations)(picture)
    return changed


@cache
def _rand_augment(num_operations: int) -> Any:
    from portcullis_training import torchvision_ops  # noqa: F401  before torchvision
    from torchvision.transforms import RandAugment  # isort: skip

    return RandAugment(num_operations, MAGNITUDE)


class _Cropping(Dataset[tuple[Tensor, int]]):
    """One photo at a time, by its position and seed."""

    def __init__(self, images: FileImages, crops: PhotoCrops) -> None:
        self.paths: tuple[Path, ...] = images.paths
        self.labels: Labels = images.labels
        self.size = (images.spec.height, images.spec.width)
        self.interpolation = images.spec.interpolation
        self.crops = crops

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int]:
        index, seed = key
        try:
            cut = crop(self.paths[index].read_bytes(), seed, self.crops, self.size, self.interpolation)
        except (PortcullisError, OSError) as error:  # it was readable when the folder was checked
            raise DataError(f"{self.paths[index]}: changed or removed while it was in use: {error}") from None
        return torch.from_numpy(np.array(cut)), int(self.labels[index])
