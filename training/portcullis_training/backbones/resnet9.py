"""ResNet-9: eight convolutions and a head; at 16-32-64-128 the best accuracy for CPU time found here."""

from __future__ import annotations

from torch import nn

from portcullis_training.backbones.features import (
    Backbone,
    GlobalMax,
    Residual,
    convolution,
    parse_widths,
)

DEFAULT_WIDTHS = (16, 32, 64, 128)


def build(options: str) -> Backbone:
    """`resnet9` or `resnet9:W-W-W-W` with the four widths."""
    first, second, third, fourth = parse_widths("resnet9", options, DEFAULT_WIDTHS)
    body = nn.Sequential(
        _block(3, first),
        _block(first, second, pool=True),
        Residual(nn.Sequential(_block(second, second), _block(second, second))),
        _block(second, third, pool=True),
        _block(third, fourth, pool=True),
        Residual(nn.Sequential(_block(fourth, fourth), _block(fourth, fourth))),
    )
    return Backbone(body, GlobalMax(), fourth)


def _block(num_in: int, num_out: int, *, pool: bool = False) -> nn.Sequential:
    """Pooling before batch norm: a quarter of the elements to normalise."""
    pooling = [nn.MaxPool2d(2)] if pool else []
    return nn.Sequential(convolution(num_in, num_out), *pooling, nn.BatchNorm2d(num_out), nn.ReLU(inplace=True))
