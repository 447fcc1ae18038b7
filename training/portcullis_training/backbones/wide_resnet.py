"""WRN-28-10 (Zagoruyko, Komodakis 2016): pre-activation residual blocks, ten times as wide, no dropout."""

from __future__ import annotations

from torch import Tensor, nn

from portcullis_training.backbones.features import (
    Backbone,
    GlobalMean,
    convolution,
    refuse_options,
)

NUM_BLOCKS_PER_STAGE = 4  # (28 - 4) / 6
WIDTHS = (160, 320, 640)


class PreActivationBlock(nn.Module):
    """norm-ReLU-conv twice; where the shape changes, the shortcut starts after the first norm-ReLU."""

    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.activation = nn.Sequential(nn.BatchNorm2d(num_in), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            convolution(num_in, num_out, stride=stride),
            nn.BatchNorm2d(num_out),
            nn.ReLU(inplace=True),
            convolution(num_out, num_out),
        )
        has_same_shape = num_in == num_out and stride == 1
        self.shortcut = None if has_same_shape else convolution(num_in, num_out, size=1, stride=stride)

    def forward(self, maps: Tensor) -> Tensor:
        """Residual sum."""
        activated = self.activation(maps)
        shortcut = maps if self.shortcut is None else self.shortcut(activated)
        result: Tensor = self.body(activated) + shortcut
        return result


def build(options: str) -> Backbone:
    """`wrn-28-10`."""
    refuse_options("wrn-28-10", options)
    blocks: list[nn.Module] = [convolution(3, 16)]
    num_in = 16
    for stage, width in enumerate(WIDTHS):
        for position in range(NUM_BLOCKS_PER_STAGE):
            blocks.append(PreActivationBlock(num_in, width, 2 if stage > 0 and position == 0 else 1))
            num_in = width
    return Backbone(nn.Sequential(*blocks, nn.BatchNorm2d(num_in), nn.ReLU(inplace=True)), GlobalMean(), num_in)
