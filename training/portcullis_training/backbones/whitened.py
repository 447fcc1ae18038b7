"""A plain network shaped for CPUs: it works at low resolution and is wide there, behind a whitening stem.

The stem's 2×2 patches are decorrelated by their principal components, taken from training images and then frozen
(after Page 2019 and Jordan 2024): the first layer needs no training, and all others start from white input.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from portcullis_training.backbones.features import (
    Backbone,
    GlobalMax,
    convolution,
    parse_widths,
)

DEFAULT_WIDTHS = (64, 256, 256)
PATCH_PIXELS = 2
NUM_COMPONENTS = 3 * PATCH_PIXELS**2
EPSILON = 5e-4  # keeps components that hardly vary from being blown up into noise


class WhiteningStem(nn.Module):
    """Each principal component of the 2×2 patches and its negative, so that nothing is lost; only the bias learns."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 2 * NUM_COMPONENTS, PATCH_PIXELS)
        self.convolution.weight.requires_grad_(False)
        nn.init.zeros_(self.convolution.bias)  # type: ignore[arg-type]
        self.activation = nn.GELU()

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, 24, H − 1, W − 1)."""
        whitened: Tensor = self.activation(self.convolution(images))
        return whitened

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Set the components from normalised images."""
        patches = images.unfold(2, PATCH_PIXELS, 1).unfold(3, PATCH_PIXELS, 1)  # (B, 3, H-1, W-1, 2, 2)
        rows = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, NUM_COMPONENTS).double()
        variances, components = torch.linalg.eigh(rows.T @ rows / len(rows))
        scaled = (components / (variances + EPSILON).sqrt()).T.flip(0)  # largest variance first
        filters = scaled.reshape(NUM_COMPONENTS, 3, PATCH_PIXELS, PATCH_PIXELS).to(images)
        self.convolution.weight.copy_(torch.cat([filters, -filters]))


class ResidualGroup(nn.Module):
    """Three convolutions; the first halves the geometry, the others learn what to add to it."""

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.first = nn.Sequential(*_block(num_in, num_out, pool=True))
        self.second = nn.Sequential(*_block(num_out, num_out, pool=False))
        self.third = nn.Sequential(convolution(num_out, num_out), nn.BatchNorm2d(num_out))
        self.activation = nn.GELU()

    def forward(self, maps: Tensor) -> Tensor:
        """(B, in, H, W) → (B, out, H/2, W/2)."""
        first = self.first(maps)
        result: Tensor = self.activation(first + self.third(self.second(first)))
        return result


class WhitenedBackbone(Backbone):
    """Groups of convolutions behind the stem, each halving the geometry."""

    is_set_from_images = True

    def __init__(self, groups: list[nn.Module], num_features: int) -> None:
        super().__init__(nn.Sequential(WhiteningStem(), *groups), GlobalMax(), num_features)

    def prepare(self, images: Tensor) -> None:
        """Whiten by these normalised training images."""
        assert isinstance(self.body, nn.Sequential) and isinstance(self.body[0], WhiteningStem)
        self.body[0].fit(images)


def build(options: str) -> Backbone:
    """`whitened` or `whitened:W-W-W` with the three widths; two convolutions a group."""
    widths = parse_widths("whitened", options, DEFAULT_WIDTHS)
    groups: list[nn.Module] = []
    for num_in, width in pairwise((2 * NUM_COMPONENTS, *widths)):
        groups += [*_block(num_in, width, pool=True), *_block(width, width, pool=False)]
    return WhitenedBackbone(groups, widths[-1])


def build_residual(options: str) -> Backbone:
    """`whitened-residual` or `whitened-residual:W-W-W`; three convolutions a group, two beside a shortcut."""
    widths = parse_widths("whitened-residual", options, DEFAULT_WIDTHS)
    groups = [ResidualGroup(num_in, width) for num_in, width in pairwise((2 * NUM_COMPONENTS, *widths))]
    return WhitenedBackbone([*groups], widths[-1])


def _block(num_in: int, num_out: int, *, pool: bool) -> list[nn.Module]:
    """Pooling before batch norm: a quarter of the elements to normalise."""
    pooling = [nn.MaxPool2d(2)] if pool else []
    return [convolution(num_in, num_out), *pooling, nn.BatchNorm2d(num_out), nn.GELU()]
