"""DenseNet-BC-100 with growth 12 (Huang et al. 2017): the smallest network of the DisMax paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from portcullis_training.backbones.features import (
    Backbone,
    GlobalMean,
    convolution,
    refuse_options,
)

GROWTH = 12
NUM_LAYERS_PER_STAGE = 16  # (100 - 4) / 6: each layer is a bottleneck and a 3×3 convolution


class DenseLayer(nn.Module):
    """A bottleneck of 4 · growth channels, then growth new channels beside everything before."""

    def __init__(self, num_in: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(num_in),
            nn.ReLU(inplace=True),
            convolution(num_in, 4 * GROWTH, size=1),
            nn.BatchNorm2d(4 * GROWTH),
            nn.ReLU(inplace=True),
            convolution(4 * GROWTH, GROWTH),
        )

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, H, W) → (B, C + growth, H, W)."""
        return torch.cat([maps, self.body(maps)], dim=1)


def build(options: str) -> Backbone:
    """`densenet-bc-100`: three dense stages, halved in width and geometry between them."""
    refuse_options("densenet-bc-100", options)
    width = 2 * GROWTH
    layers: list[nn.Module] = [convolution(3, width)]
    for stage in range(3):
        for _ in range(NUM_LAYERS_PER_STAGE):
            layers.append(DenseLayer(width))
            width += GROWTH
        if stage < 2:
            layers.append(_transition(width))
            width //= 2
    layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return Backbone(nn.Sequential(*layers), GlobalMean(), width)


def _transition(num_in: int) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm2d(num_in), nn.ReLU(inplace=True), convolution(num_in, num_in // 2, size=1), nn.AvgPool2d(2)
    )
