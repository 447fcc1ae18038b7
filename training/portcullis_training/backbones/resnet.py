"""The CIFAR residual networks: ResNet-20 of He et al. 2016, and the ResNet-34 of the DisMax paper."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from portcullis_training.backbones.features import (
    Backbone,
    GlobalMean,
    convolution,
    refuse_options,
)


class PaddingShortcut(nn.Module):
    """He's option A: take every second pixel and pad the new channels with zeros; no parameters."""

    def __init__(self, num_new_channels: int) -> None:
        super().__init__()
        self.padding = num_new_channels // 2

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, H, W) → (B, C + new, H/2, W/2)."""
        return F.pad(maps[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, num_in: int, num_out: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(
            convolution(num_in, num_out, stride=stride),
            nn.BatchNorm2d(num_out),
            nn.ReLU(inplace=True),
            convolution(num_out, num_out),
            nn.BatchNorm2d(num_out),
        )
        self.shortcut = shortcut

    def forward(self, maps: Tensor) -> Tensor:
        """Residual sum, then ReLU."""
        return F.relu(self.body(maps) + self.shortcut(maps))


def build_resnet20(options: str) -> Backbone:
    """Three stages of three blocks, 16-32-64, parameterless shortcuts."""
    refuse_options("resnet20", options)
    return _resnet((16, 32, 64), (3, 3, 3), use_padding_shortcuts=True)


def build_resnet34(options: str) -> Backbone:
    """ImageNet's 3-4-6-3 stages behind a 3×3 stem without pooling, so that 32×32 pixels survive."""
    refuse_options("resnet34", options)
    return _resnet((64, 128, 256, 512), (3, 4, 6, 3), use_padding_shortcuts=False)


def _resnet(widths: tuple[int, ...], depths: tuple[int, ...], *, use_padding_shortcuts: bool) -> Backbone:
    stem = [convolution(3, widths[0]), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True)]
    blocks: list[nn.Module] = []
    num_in = widths[0]
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for position in range(depth):
            stride = 2 if stage > 0 and position == 0 else 1
            blocks.append(BasicBlock(num_in, width, stride, _shortcut(num_in, width, stride, use_padding_shortcuts)))
            num_in = width
    return Backbone(nn.Sequential(*stem, *blocks), GlobalMean(), num_in)


def _shortcut(num_in: int, num_out: int, stride: int, use_padding: bool) -> nn.Module:
    if num_in == num_out and stride == 1:
        return nn.Identity()
    if use_padding:
        return PaddingShortcut(num_out - num_in)
    return nn.Sequential(convolution(num_in, num_out, size=1, stride=stride), nn.BatchNorm2d(num_out))
