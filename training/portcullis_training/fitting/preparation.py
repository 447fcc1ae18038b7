"""What is made ready before the first step: the backbone, the optimiser and its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from portcullis_training import data, methods
from portcullis_training.backbones.middle import first_layers
from portcullis_training.config import RunConfig
from portcullis_training.errors import ConfigError
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.methods import LooksTwice, Method
from portcullis_training.methods.formulas.answers import innermost

NUM_PREPARATION_IMAGES = 2000


def prepare_backbone(classifier: Classifier, config: RunConfig, splits: data.Splits) -> None:
    """Let the backbone set from training images what it does not learn, and settle what stays as it came pretrained."""
    backbone, spec = classifier.backbone, splits.image_spec
    if backbone.is_set_from_images:
        backbone.prepare((_some(splits.train) - classifier.mean) / classifier.std)
    backbone.keeps_norms = config.keep_norms
    if config.fixed_stride is not None:
        for layer in first_layers(backbone, torch.zeros(1, 3, spec.height, spec.width), config.fixed_stride):
            layer.requires_grad_(False)


def _some(images: data.ImageSet) -> Tensor:
    positions = np.linspace(0, len(images) - 1, min(len(images), NUM_PREPARATION_IMAGES)).astype(np.int64)
    return data.to_float(next(images.batches([positions]))[0])


def refuse_what_the_method_cannot(method: Method, config: RunConfig) -> None:
    """Before anything is trained."""
    if config.mixing != "none" and not method.can_mix:
        raise ConfigError(f"mixing: {method.title} needs one label an image; train it with --mixing none")
    if config.frozen and method.needs_whole_network:
        raise ConfigError(f"frozen: {method.title} trains the whole network; train it with --no-frozen")
    if config.members > 1 and isinstance(method, LooksTwice):
        raise ConfigError(f"members: {method.title} looks at every image twice, which an ensemble does not")
    if config.compile and method.has_penalty:
        raise ConfigError(f"compile: {method.title} takes gradients of gradients, which torch.compile does not")


def make_optimizer(classifier: Classifier, config: RunConfig) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum, or AdamW, over all learnable parameters."""
    groups = parameter_groups(classifier, config)
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.learning_rate)
    return torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.momentum, nesterov=True)


def parameter_groups(classifier: Classifier, config: RunConfig) -> list[dict[str, Any]]:
    """All learnable parameters by their weight decay and their `rate`, which multiplies the schedule's.

    The decay is on all of them or on matrices only, but for those that the method spares; the backbone, batch norm's
    biases and the method may have rates of their own.
    """
    method = methods.find(config.method)
    undecayed = {id(parameter) for parameter in method.undecayed(innermost(classifier.head))}
    norm_biases = {id(bias) for bias in _norm_biases(classifier)}
    of_backbone = {id(parameter) for parameter in classifier.backbone.parameters()}
    # The first two are always there, in this order: checkpoints of earlier runs have them.
    groups: dict[tuple[float, float], list[Tensor]] = {(config.weight_decay, 1.0): [], (0.0, 1.0): []}
    for parameter in classifier.parameters():
        if not parameter.requires_grad:
            continue
        rate = method.rate * (config.backbone_rate if id(parameter) in of_backbone else 1.0)
        rate *= config.norm_bias_rate if id(parameter) in norm_biases else 1.0
        is_decayed = (config.decay_vectors or parameter.ndim > 1) and id(parameter) not in undecayed
        decay = config.weight_decay if is_decayed else 0.0
        groups.setdefault((decay, rate), []).append(parameter)
    return [{"params": found, "weight_decay": decay, "rate": rate} for (decay, rate), found in groups.items()]


def _norm_biases(classifier: Classifier) -> Iterator[Tensor]:
    for module in classifier.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.SyncBatchNorm) and module.bias is not None:
            yield module.bias
