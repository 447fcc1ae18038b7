"""The loss around trained weights along two random directions, each filter as long as the weights' (Li et al. 2018).

Without that a network whose weights are large looks flat and one whose weights are small looks rugged, though both may
compute the same.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from portcullis_training.data import ImageSet, to_float
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.measuring.metrics import Array
from portcullis_training.methods import Method

HALF_WIDTH = 1.0
"""How far the plane reaches on each side: at 1 every filter is as far away as it is long."""
Direction = Mapping[str, Tensor]


def filter_normalised(network: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """A random direction: every filter as long as that of the weights; biases and batch norms stay where they are."""
    direction = {}
    for name, weights in network.named_parameters():
        if weights.ndim > 1 and weights.requires_grad:
            drawn = torch.randn(weights.shape, generator=generator).to(weights)
            direction[name] = drawn * (_filter_norms(weights) / _filter_norms(drawn).clamp(min=1e-12))
    return direction


@torch.no_grad()
def landscape(
    classifier: Classifier, method: Method, images: ImageSet, *, num_places: int, seed: int = 0
) -> tuple[Array, Array]:
    """Places along either direction (P,), and the loss (P, P) there; batch norm keeps its statistics."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (filter_normalised(classifier, generator) for _ in range(2))
    start = {name: weights.detach().clone() for name, weights in classifier.named_parameters()}
    places = np.linspace(-HALF_WIDTH, HALF_WIDTH, num_places)
    pixels, labels = next(images.batches([np.arange(len(images))]))
    floats = to_float(pixels)
    losses = np.empty((num_places, num_places))
    classifier.eval()
    try:
        for row, column in np.ndindex(losses.shape):
            down, across = float(places[row]), float(places[column])
            _move(classifier, start, {name: down * first[name] + across * second[name] for name in first})
            losses[row, column] = method.loss(classifier(floats), labels).item()
    finally:
        _move(classifier, start, {})
    return places, losses


def _move(classifier: Classifier, start: Direction, step: Direction) -> None:
    for name, weights in classifier.named_parameters():
        weights.copy_(start[name] + step[name] if name in step else start[name])


def _filter_norms(weights: Tensor) -> Tensor:
    """(F, 1, …): the length of each filter, or of each class's weights."""
    norms = weights.flatten(1).norm(dim=1)
    return norms.view(-1, *[1] * (weights.ndim - 1))
