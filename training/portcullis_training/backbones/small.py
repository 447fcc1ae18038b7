"""A small residual network for images of 8×8 to 28×28 pixels: digits train in seconds."""

from __future__ import annotations

from torch import nn

from portcullis_training.backbones.features import (
    Backbone,
    GlobalMax,
    Residual,
    convolution,
    parse_widths,
)

DEFAULT_WIDTHS = (32, 64, 128)


def build(options: str) -> Backbone:
    """`small` or `small:W-W-W` with the three widths."""
    first, second, third = parse_widths("small", options, DEFAULT_WIDTHS)
    body = nn.Sequential(
        _block(3, first),
        _block(first, second, stride=2),
        Residual(_block(second, second)),
        _block(second, third, stride=2),
        Residual(_block(third, third)),
    )
    return Backbone(body, GlobalMax(), third)


def _block(num_in: int, num_out: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(convolution(num_in, num_out, stride=stride), nn.BatchNorm2d(num_out), nn.ReLU(inplace=True))
