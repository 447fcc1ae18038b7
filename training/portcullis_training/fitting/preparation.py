"""What is made ready before the first step: the backbone, the optimiser and its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from portcullis_training import data
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.recipes import RunConfig

NUM_PREPARATION_IMAGES = 2000


def prepare_backbone(classifier: Classifier, images: data.ImageSet) -> None:
    """Let the backbone set from training images what it does not learn."""
    if not classifier.backbone.is_set_from_images:
        return
    positions = np.linspace(0, len(images) - 1, min(len(images), NUM_PREPARATION_IMAGES)).astype(np.int64)
    pixels, _ = next(images.batches([positions]))
    classifier.backbone.prepare((data.to_float(pixels) - classifier.mean) / classifier.std)


def make_optimizer(classifier: Classifier, config: RunConfig) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum, or AdamW, over all learnable parameters."""
    groups = parameter_groups(classifier, config)
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.learning_rate)
    return torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.momentum, nesterov=True)


def parameter_groups(classifier: Classifier, config: RunConfig) -> list[dict[str, Any]]:
    """All learnable parameters by their weight decay and their `rate`, which multiplies the schedule's.

    The decay is on all of them or on matrices only; the backbone, and batch norm's biases, may have rates of their own.
    """
    norm_biases = {id(bias) for bias in _norm_biases(classifier)}
    of_backbone = {id(parameter) for parameter in classifier.backbone.parameters()}
    # The first two are always there, in this order: checkpoints of earlier runs have them.
    groups: dict[tuple[float, float], list[Tensor]] = {(config.weight_decay, 1.0): [], (0.0, 1.0): []}
    for parameter in classifier.parameters():
        if not parameter.requires_grad:
            continue
        rate = config.backbone_rate if id(parameter) in of_backbone else 1.0
        rate *= config.norm_bias_rate if id(parameter) in norm_biases else 1.0
        decay = config.weight_decay if config.decay_vectors or parameter.ndim > 1 else 0.0
        groups.setdefault((decay, rate), []).append(parameter)
    return [{"params": found, "weight_decay": decay, "rate": rate} for (decay, rate), found in groups.items()]


def _norm_biases(classifier: Classifier) -> Iterator[Tensor]:
    for module in classifier.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.SyncBatchNorm) and module.bias is not None:
            yield module.bias
