"""What every backbone is: a module that maps images to features and says how many."""

from __future__ import annotations

from torch import Tensor, nn

from training.errors import ConfigError


class Backbone(nn.Module):
    """A body from normalised images to a feature map, and a pool from the map to (B, num_features)."""

    is_set_from_images = False
    """Whether `prepare` has anything to do."""

    def __init__(self, body: nn.Module, pool: nn.Module, num_features: int) -> None:
        super().__init__()
        self.body = body
        self.pool = pool
        self.num_features = num_features

    def prepare(self, images: Tensor) -> None:
        """Called once before training with some normalised training images, for what is set from data."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, num_features) of (B, 3, H, W)."""
        features: Tensor = self.pool(self.body(images))
        return features


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
