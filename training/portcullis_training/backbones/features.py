"""What every backbone is: a module that maps images to features and says how many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from portcullis_training.backbones.middle import find_middle, spatial_means
from portcullis_training.errors import ConfigError


class Backbone(nn.Module):
    """A body from normalised images to a feature map, and a pool from the map to (B, num_features)."""

    is_set_from_images = False
    """Whether `prepare` has anything to do."""

    def __init__(self, body: nn.Module, pool: nn.Module, num_features: int) -> None:
        super().__init__()
        self.body = body
        self.pool = pool
        self.num_features = num_features
        self.middle: str | None = None
        """Path of the middle block, once it was looked for."""
        self.keeps_norms = False
        """Whether batch norm goes on with the statistics that it has, in training too."""

    def train(self, mode: bool = True) -> Backbone:
        """As of every module, but for batch norms that are kept."""
        super().train(mode)
        for module in self.modules() if self.keeps_norms else ():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def prepare(self, images: Tensor) -> None:
        """Called once before training with some normalised training images, for what is set from data."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, num_features) of (B, 3, H, W)."""
        features: Tensor = self.pool(self.body(images))
        return features

    def features_and_middle(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The features (B, num_features), and the spatial means (B, m) of the middle block, in one pass."""
        if self.middle is None:
            self.middle = find_middle(self, images[:1])
        seen: list[Tensor] = []
        handle = self.get_submodule(self.middle).register_forward_hook(lambda _, __, output: seen.append(output))
        try:
            features: Tensor = self(images)
        finally:
            handle.remove()
        return features, spatial_means(seen[-1])


class GlobalMean(nn.Module):
    """Mean over the feature map."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C) of (B, C, H, W)."""
        return maps.mean(dim=(2, 3))


class GlobalMax(nn.Module):
    """Maximum over the feature map."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C) of (B, C, H, W)."""
        return maps.amax(dim=(2, 3))


class Residual(nn.Module):
    """x + body(x)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, maps: Tensor) -> Tensor:
        """Same shape in and out."""
        result: Tensor = maps + self.body(maps)
        return result


def convolution(num_in: int, num_out: int, *, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the geometry (at stride 1), He-initialised, without bias: batch norm follows."""
    layer = nn.Conv2d(num_in, num_out, size, stride=stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


@torch.no_grad()
def start_as_identity(body: nn.Module) -> None:
    """Let every convolution that keeps its channels or adds some pass its input on (Dirac; Jordan 2024).

    A frozen layer, such as a whitening stem, and one that has fewer channels than its input stay as they are.
    """
    for layer in body.modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.requires_grad and layer.groups == 1:
            num_passed = layer.in_channels if layer.in_channels <= layer.out_channels else 0
            nn.init.dirac_(layer.weight[:num_passed])


def parse_widths(name: str, options: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """'24-48-96-192' → (24, 48, 96, 192); the default where nothing was asked for."""
    if not options:
        return default
    parts = options.split("-")
    if len(parts) != len(default) or not all(part.isdigit() and int(part) > 0 for part in parts):
        example = "-".join(map(str, default))
        raise ConfigError(f"{name}: expected {len(default)} widths like {name}:{example}, got {options!r}")
    return tuple(int(part) for part in parts)


def refuse_options(name: str, options: str) -> None:
    """For the paper's backbones, which have exactly one shape."""
    if options:
        raise ConfigError(f"backbone {name} takes no options, got {options!r}")
