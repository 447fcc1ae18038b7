"""Convolutions of small maps as matrix products: faster training in bfloat16 on CPUs that multiply whole tiles (AMX).

oneDNN's kernels walk along the rows of a map. Where a row is five places long, or two, they hardly get going, above all
for the gradient of the filters; one product of all patches with all filters does. CPUs without tiles gain nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

HAS_TILES = bool(torch.cpu.get_capabilities().get("amx_bf16"))
LARGEST_SIDE = 8  # of maps whose filters learn by products
LARGEST_PRODUCT_SIDE = 5  # of maps that are convolved by products, too
MOST_PATCH_BYTES = 12 * 2**20


class SmallMapConvolution(nn.Conv2d):
    """A convolution of stride 1 that keeps the geometry, without bias; a product in training in bfloat16 on a CPU."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, in, H, W) → (B, out, H, W)."""
        is_in_tiles = HAS_TILES and maps.is_cpu and torch.is_autocast_enabled("cpu")
        if not (self.training and is_in_tiles and max(maps.shape[2:]) <= LARGEST_SIDE):
            return super().forward(maps)
        dtype = torch.get_autocast_dtype("cpu")
        product: Tensor = _Product.apply(maps.to(dtype), self.weight.to(dtype))
        return product


class _Product(torch.autograd.Function):
    """Patches are gathered again for the gradient instead of kept: they are nine times as large as the maps."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(maps, weight)
        return _convolved(maps, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The gradient of the maps is a convolution with turned filters; that of the filters sums over all patches."""
        maps, weight = ctx.saved_tensors
        of_maps = _convolved(gradient, weight.flip(2, 3).transpose(0, 1)) if ctx.needs_input_grad[0] else None
        of_weight = _correlated(gradient, maps, weight.shape[2]) if ctx.needs_input_grad[1] else None
        return of_maps, of_weight


def _convolved(maps: Tensor, weight: Tensor) -> Tensor:
    """(B, out, H, W), channels last, of (B, in, H, W) and (out, in, k, k)."""
    size = weight.shape[2]
    if max(maps.shape[2:]) > LARGEST_PRODUCT_SIDE:
        return functional.conv2d(maps, weight.contiguous(memory_format=torch.channels_last), padding=size // 2)
    filters = weight.permute(2, 3, 1, 0).reshape(-1, len(weight))  # (k·k·in, out)
    products = torch.cat([_patches(part, size) @ filters for part in maps.split(_num_together(maps, size))])
    return products.view(len(maps), *maps.shape[2:], -1).permute(0, 3, 1, 2)


def _correlated(gradient: Tensor, maps: Tensor, size: int) -> Tensor:
    """(out, in, k, k): what the gradient (B, out, H, W) asks of each filter, over all places of all maps."""
    num_out, num_together = gradient.shape[1], _num_together(maps, size)
    total = torch.zeros(num_out, size * size * maps.shape[1], dtype=torch.promote_types(gradient.dtype, torch.float32))
    for part, asked in zip(maps.split(num_together), gradient.split(num_together), strict=True):
        total = total + asked.permute(1, 0, 2, 3).reshape(num_out, -1) @ _patches(part, size)
    return total.view(num_out, size, size, -1).permute(0, 3, 1, 2).to(gradient.dtype)


def _patches(maps: Tensor, size: int) -> Tensor:
    """What each filter sees at each place: (B·H·W, k·k·C) of (B, C, H, W)."""
    margin = size // 2
    padded = functional.pad(maps.permute(0, 2, 3, 1), (0, 0, margin, margin, margin, margin)).contiguous()
    windows = padded.unfold(1, size, 1).unfold(2, size, 1)  # (B, H, W, C, k, k)
    return windows.permute(0, 1, 2, 4, 5, 3).reshape(-1, size * size * maps.shape[1])


def _num_together(maps: Tensor, size: int) -> int:
    """As many images as `MOST_PATCH_BYTES` hold: their patches stay near the core, in memory that is used again."""
    return max(1, MOST_PATCH_BYTES // (maps[0].numel() * maps.element_size() * size * size))
