"""CutMix (Yun et al. 2019): a box of another image in each image, and the share of it that is left."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

CHANCE = 0.5
"""Of a batch to be mixed at all."""


class Mixed(NamedTuple):
    """A batch of which every image has the same box from its partner."""

    images: Tensor  # (B, 3, H, W)
    partner_labels: Tensor  # (B,)
    own_share: float
    """λ: the exact share of the area that is each image's own."""


def cut_mix(images: Tensor, labels: Tensor, generator: Generator) -> Mixed:
    """With probability one half mixed, λ ~ Beta(1, 1); always the same number of draws, whatever comes of them."""
    chance, share, row, column = torch.rand(4, generator=generator).tolist()
    partners = torch.randperm(len(images), generator=generator).to(images.device)
    if chance >= CHANCE:
        return Mixed(images, labels, 1.0)
    top, bottom = _side(images.shape[2], share, row)
    left, right = _side(images.shape[3], share, column)
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = images[partners, :, top:bottom, left:right]
    area = (bottom - top) * (right - left)
    return Mixed(mixed, labels[partners], 1 - area / (images.shape[2] * images.shape[3]))


def _side(length: int, own_share: float, centre: float) -> tuple[int, int]:
    """First and last-but-one place of a box whose side is √(1 − λ) of the image's, cut off at its edges."""
    size, middle = int(length * (1 - own_share) ** 0.5), int(length * centre)
    return max(0, middle - size // 2), min(length, middle + size // 2)
