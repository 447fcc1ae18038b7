"""What one training step minimises: the method's loss, with or without the fractional regulariser."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from training.fractional import compound_images, compound_targets, divergence
from training.methods import Method

REGULARISER_WEIGHT = 1.0
"""The paper's α."""


class Objective(NamedTuple):
    """The loss of one batch and how many of its whole images were answered rightly."""

    loss: Tensor
    num_correct: Tensor
    """Stays on the device: reading it every step would stall a GPU."""
    num_counted: int


def objective(
    method: Method,
    classifier: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    fractional_regulariser: bool,
) -> Objective:
    """The loss of a shuffled batch; the classifier runs once, so that it may be compiled or distributed."""
    num_compound = len(images) // 2 if fractional_regulariser else 0
    if num_compound == 0:  # also a last batch of one image, which has no second half
        return _plain(method, classifier(images), labels)
    return _regularised(method, classifier, images, labels, num_whole=len(images) - num_compound)


def _plain(method: Method, logits: Tensor, labels: Tensor) -> Objective:
    return Objective(method.loss(logits, labels), _num_correct(logits, labels), len(labels))


def _regularised(
    method: Method, classifier: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, num_whole: int
) -> Objective:
    """(CE(first half) + α · KL(Q ‖ P)) / 2, where the second half is made of compound images."""
    logits = classifier(torch.cat([images[:num_whole], compound_images(images[num_whole:])]))  # (B, C)
    whole = _plain(method, logits[:num_whole], labels[:num_whole])
    targets = compound_targets(labels[num_whole:], logits.shape[1])  # (B/2, C)
    regulariser = divergence(targets, method.training_log_probabilities(logits[num_whole:]))
    return whole._replace(loss=(whole.loss + REGULARISER_WEIGHT * regulariser) / 2)


def _num_correct(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.detach().argmax(dim=1) == labels).sum()
