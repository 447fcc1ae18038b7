"""What is made ready before the first step: the backbone, the parameters by their decay, the images to be decoded."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from training import data
from training.classifier import Classifier
from training.recipes import RunConfig

NUM_PREPARATION_IMAGES = 2000


def prepare_backbone(classifier: Classifier, images: data.ImageSet) -> None:
    """Let the backbone set from training images what it does not learn."""
    if not classifier.backbone.is_set_from_images:
        return
    positions = np.linspace(0, len(images) - 1, min(len(images), NUM_PREPARATION_IMAGES)).astype(np.int64)
    pixels, _ = next(images.batches([positions]))
    classifier.backbone.prepare((data.to_float(pixels) - classifier.mean) / classifier.std)


def parameter_groups(classifier: Classifier, config: RunConfig) -> list[dict[str, Any]]:
    """All learnable parameters, with weight decay on all of them or on matrices only."""
    decayed: list[Tensor] = []
    others: list[Tensor] = []
    for parameter in classifier.parameters():
        if parameter.requires_grad:
            (decayed if config.decay_vectors or parameter.ndim > 1 else others).append(parameter)
    return [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]


def training_images(splits: data.Splits, config: RunConfig) -> data.ImageSet:
    """The training images; files are decoded with a margin where random boxes are cut out of them."""
    images = splits.train
    if isinstance(images, data.FileImages) and config.augmentation == "resized-crop-flip":
        spec = splits.image_spec
        side = spec.resize_shorter_side or max(spec.height, spec.width)
        return images.with_spec(spec.model_copy(update={"height": side, "width": side}))
    return images
