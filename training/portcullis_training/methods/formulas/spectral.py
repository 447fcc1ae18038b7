"""A bound on how much a layer can stretch its input: weights are scaled down where their spectral norm is above it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_input
from torch.nn.utils import parametrize

SIDE = 16
"""Places a side of the map on which a convolution's norm is estimated; more hardly change it."""
NUM_SETTLING_ITERATIONS = 50


class SpectralBound(nn.Module):
    """W · min(1, bound / σ(W)), σ by power iteration, one step each time the layer is trained."""

    direction: Tensor

    def __init__(self, layer: nn.Conv2d | nn.Linear, bound: float) -> None:
        super().__init__()
        self.bound = bound
        self.geometry: tuple[Any, ...] | None = None
        shape: tuple[int, ...] = (1, layer.weight.shape[1])
        if isinstance(layer, nn.Conv2d):
            self.geometry = (layer.stride, layer.padding, layer.dilation, layer.groups)
            shape = (1, layer.in_channels, SIDE, SIDE)
        direction = torch.randn(shape, dtype=layer.weight.dtype, device=layer.weight.device)
        self.register_buffer("direction", _unit(direction))

    def forward(self, weight: Tensor) -> Tensor:
        """The weight that is used."""
        with torch.autocast(weight.device.type, enabled=False):
            if self.training:
                self._turn(weight, 1)
            return weight * (self.bound / self.norm(weight)).clamp(max=1)

    def norm(self, weight: Tensor) -> Tensor:
        """σ(W), estimated: the length of what comes of the direction."""
        stretched = self._stretched(weight, _unit(self.direction).detach().clone())
        return stretched.square().sum().clamp(min=1e-24).sqrt()

    def settle(self, weight: Tensor) -> None:
        """Bring the estimate to its end, for weights that will not change any more."""
        self._turn(weight, NUM_SETTLING_ITERATIONS)

    @torch.no_grad()
    def _turn(self, weight: Tensor, num_iterations: int) -> None:
        for _ in range(num_iterations):
            stretched = _unit(self._stretched(weight, self.direction))
            self.direction.copy_(_unit(self._pulled_back(weight, stretched)))

    def _stretched(self, weight: Tensor, inputs: Tensor) -> Tensor:
        """W x, of the layer without its bias."""
        if self.geometry is None:
            return inputs @ weight.T
        return functional.conv2d(inputs, weight, None, *self.geometry)

    def _pulled_back(self, weight: Tensor, outputs: Tensor) -> Tensor:
        """Wᵀ y, as the gradient of W x · y."""
        if self.geometry is None:
            return outputs @ weight
        return conv2d_input(self.direction.shape, weight, outputs, *self.geometry)


def bound_layers(network: nn.Module, bound: float) -> None:
    """Bound every convolution and linear layer that learns."""
    for layer in list(network.modules()):
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.weight.requires_grad:
            parametrize.register_parametrization(layer, "weight", SpectralBound(layer, bound))


def settle(network: nn.Module) -> None:
    """Bring the estimate of every bounded layer to its end."""
    for module in network.modules():
        if isinstance(module, parametrize.ParametrizationList) and isinstance(module[0], SpectralBound):
            assert isinstance(module.original, Tensor)
            module[0].settle(module.original)


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.square().sum().clamp(min=1e-24).sqrt()
