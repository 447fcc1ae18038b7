"""Parts of a network, found by rule: its middle block, where textures are not yet things, and its first layers.

The last map of a network sees whole objects, and a stranger that looks like none of them looks like nothing at all. The
block before still sees texture and material. The rule: of the modules whose map has the next larger geometry than the
last map, the outermost, and of several the one that runs last. A network whose maps all have one size (a transformer)
gives the block two thirds of the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from portcullis_training.errors import ConfigError


@dataclass(frozen=True)
class _Seen:
    """A module that gave a map or tokens."""

    path: str
    kind: type[nn.Module]
    num_places: int
    is_map: bool

    @property
    def depth(self) -> int:
        return self.path.count(".")


def find_middle(network: nn.Module, image: Tensor) -> str:
    """The path of the middle block, by sending one image (1, 3, H, W) through the network."""
    seen = _watch(network, image)
    # A convolution alone ends no block: it may as well begin the next one, before that shrinks its map. What dropout
    # gives may be weights of attention, which look like a map and are none.
    maps = [one for one in seen if one.is_map and not issubclass(one.kind, nn.Conv2d | nn.Dropout)]
    last = next((one.num_places for one in reversed(maps) if one.num_places > 1), 1)  # pooling leaves one place
    larger = [one for one in maps if one.num_places > last]
    if not larger or not seen[-1].is_map:
        return _two_thirds([one for one in seen if one.num_places > 1])
    nearest = min(one.num_places for one in larger)
    candidates = [one for one in larger if one.num_places == nearest]
    outermost = min(one.depth for one in candidates)
    return [one for one in candidates if one.depth == outermost][-1].path


def first_layers(network: nn.Module, image: Tensor, stride: int) -> list[nn.Module]:
    """All layers up to the last whose map is finer than 1/stride of the image's sides: those of edges and textures."""
    finest = (min(image.shape[2:]) // stride) ** 2
    seen = _watch(network, image)
    num_first = max((number for number, one in enumerate(seen, start=1) if one.num_places > finest), default=0)
    return [network.get_submodule(one.path) for one in seen[:num_first]]


def spatial_means(maps: Tensor) -> Tensor:
    """(B, C) of maps (B, C, H, W), of maps with channels last (B, H, W, C), or of tokens (B, T, C)."""
    if maps.ndim == 3:
        return maps.mean(dim=1)
    return maps.mean(dim=(1, 2) if _has_channels_last(maps) else (2, 3))


def _two_thirds(blocks: list[_Seen]) -> str:
    """Of the longest chain of like modules under one parent, the one two thirds of the way."""
    chains: dict[tuple[str, type[nn.Module]], list[str]] = {}
    for one in blocks:
        chains.setdefault((one.path.rpartition(".")[0], one.kind), []).append(one.path)
    if not chains:
        raise ConfigError("the network shows no maps and no tokens, so that it has no middle block")
    longest = max(chains.values(), key=len)
    return longest[-(-2 * len(longest) // 3) - 1]


@torch.inference_mode()
def _watch(network: nn.Module, image: Tensor) -> list[_Seen]:
    """All modules that gave a map or tokens, in the order in which they were done."""
    seen: dict[str, _Seen] = {}

    def watched(path: str) -> Callable[[nn.Module, object, object], None]:
        def note(module: nn.Module, inputs: object, output: object) -> None:
            if path and isinstance(output, Tensor) and output.ndim in (3, 4):
                seen.pop(path, None)  # one that runs twice counts where it runs last
                seen[path] = _Seen(path, type(module), _num_places(output), output.ndim == 4)

        return note

    # What computes weights from others gives no maps, though a convolution's weights have the shape of some.
    modules = [one for one in network.named_modules() if "parametrizations" not in one[0].split(".")]
    handles = [module.register_forward_hook(watched(path)) for path, module in modules]
    was_training = network.training
    try:
        network.eval()(image)
    finally:
        for handle in handles:
            handle.remove()
        network.train(was_training)
    return list(seen.values())


def _num_places(output: Tensor) -> int:
    if output.ndim == 3:
        return output.shape[1]
    return output.shape[1] * output.shape[2] if _has_channels_last(output) else output.shape[2] * output.shape[3]


def _has_channels_last(maps: Tensor) -> bool:
    """Of square images: (B, H, W, C), as timm's Swin gives them."""
    return maps.shape[1] == maps.shape[2] and maps.shape[2] != maps.shape[3]
