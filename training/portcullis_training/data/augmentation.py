"""Augmentation of a whole batch at once, on whatever device the batch lies.

Random numbers are drawn for the whole batch of all processes, from one generator, and then sliced: several processes
see the very images that one would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

PADDING_SHARE = 8  # an eighth of the side: 4 pixels of 32, as in the paper
SCALES = (0.08, 1.0)  # share of the area that a resized crop keeps
RATIOS = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class Crops:
    """Where each image is cut out, as a share of the room there is, and whether it is mirrored."""

    tops: Tensor
    lefts: Tensor
    flips: Tensor
    scales: Tensor
    ratios: Tensor

    def part(self, positions: Tensor) -> Crops:
        """The crops of one process's share of the batch."""
        return Crops(*(getattr(self, name)[positions] for name in ("tops", "lefts", "flips", "scales", "ratios")))


def draw(num_images: int, generator: Generator) -> Crops:
    """Fresh crops for a batch."""
    tops, lefts, flips, scales, ratios = torch.rand(5, num_images, generator=generator)
    log_ratio = math.log(RATIOS[0]) + ratios * (math.log(RATIOS[1]) - math.log(RATIOS[0]))
    return Crops(tops, lefts, flips < 0.5, SCALES[0] + scales * (SCALES[1] - SCALES[0]), log_ratio.exp())


def augment(kind: str, images: Tensor, crops: Crops, size: tuple[int, int], crop_pixels: int | None = None) -> Tensor:
    """uint8 NHWC → uint8 or float32 NHWC of `size`, on the scale of the input; crops reach an eighth by default."""
    if kind == "none":
        return images
    if kind == "resized-crop-flip":
        return _flip(_resized_crop(images, crops, size), crops.flips)
    flips = torch.zeros_like(crops.flips) if kind == "crop" else crops.flips
    height, width = images.shape[1:3]
    default = (height // PADDING_SHARE, width // PADDING_SHARE)
    padding = default if crop_pixels is None else (crop_pixels, crop_pixels)
    return _crop(images, crops, flips, padding, reflect=kind == "reflect-crop-flip")


def cut_out(images: Tensor, squares: Tensor, pixels: int, colour: tuple[float, float, float]) -> Tensor:
    """Paint a square into each NCHW image (DeVries & Taylor 2017); whole, where theirs may lie half outside.

    `squares` are (2, B) tops and lefts as a share of the room there is.
    """
    insides = []
    for side, shares in zip(images.shape[2:], squares.to(images.device), strict=True):
        starts = (shares * (side - pixels + 1)).long().clamp(max=side - pixels)[:, None]  # (B, 1)
        places = torch.arange(side, device=images.device)
        insides.append((places >= starts) & (places < starts + pixels))  # (B, side)
    is_painted = insides[0][:, None, :, None] & insides[1][:, None, None, :]  # (B, 1, H, W)
    painted = torch.where(is_painted, torch.tensor(colour, device=images.device).view(1, 3, 1, 1), images)
    return painted.contiguous(memory_format=torch.channels_last)


def resize(images: Tensor, pixels: int) -> Tensor:
    """Float NCHW images made smaller or larger, antialiased; channels_last stays channels_last."""
    if tuple(images.shape[2:]) == (pixels, pixels):
        return images
    resized = functional.interpolate(images, size=(pixels, pixels), mode="bilinear", antialias=True)
    return resized.contiguous(memory_format=torch.channels_last)


def _crop(images: Tensor, crops: Crops, flips: Tensor, padding: tuple[int, int], *, reflect: bool) -> Tensor:
    """Pad with black or a reflection, cut out the old size at random places, mirror: one gather for the batch."""
    num_images, height, width, _ = images.shape
    above, beside = padding
    tops = (crops.tops * (2 * above + 1)).long().clamp(max=2 * above)
    lefts = (crops.lefts * (2 * beside + 1)).long().clamp(max=2 * beside)
    columns = torch.arange(width).expand(num_images, width)
    columns = torch.where(flips[:, None], columns.flip(1), columns) + lefts[:, None]  # (B, W)
    rows = torch.arange(height) + tops[:, None]  # (B, H)
    if reflect:
        rows, columns = _reflected(rows - above, height), _reflected(columns - beside, width)
    else:
        images = functional.pad(images, (0, 0, beside, beside, above, above))
    batch = torch.arange(num_images, device=images.device)[:, None, None]
    return images[batch, rows.to(images.device)[:, :, None], columns.to(images.device)[:, None, :]]


def _reflected(positions: Tensor, size: int) -> Tensor:
    """Positions beyond an edge, mirrored at it: -1 → 1, size → size − 2."""
    return (size - 1) - ((size - 1) - positions.abs()).abs()


def _resized_crop(images: Tensor, crops: Crops, size: tuple[int, int]) -> Tensor:
    """A box of random area and shape from each image, resized: the usual augmentation of ImageNet."""
    height, width = images.shape[1:3]
    planes = images.permute(0, 3, 1, 2).float()
    results = []
    for index, plane in enumerate(planes):
        area = float(crops.scales[index]) * height * width
        ratio = float(crops.ratios[index])
        box_width = min(width, max(1, round(math.sqrt(area * ratio))))
        box_height = min(height, max(1, round(math.sqrt(area / ratio))))
        top = round(float(crops.tops[index]) * (height - box_height))
        left = round(float(crops.lefts[index]) * (width - box_width))
        box = plane[None, :, top : top + box_height, left : left + box_width]
        results.append(functional.interpolate(box, size=size, mode="bilinear", antialias=True))
    return torch.cat(results).permute(0, 2, 3, 1)


def _flip(images: Tensor, flips: Tensor) -> Tensor:
    return torch.where(flips.to(images.device)[:, None, None, None], images.flip(2), images)
