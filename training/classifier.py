"""The classifier: normalisation, backbone and head as one trainable whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from training.backbones.features import Backbone

if TYPE_CHECKING:
    from training.recipes import RunConfig


@dataclass(frozen=True)
class ChannelStatistics:
    """Mean and standard deviation of each colour channel over the training images, on the scale [0, 1]."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class Classifier(nn.Module):
    """Logits of float32 NCHW images in [0, 1]; normalisation happens inside, so that it is exported too."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, head: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1))

    def features(self, images: Tensor) -> Tensor:
        """(B, d) features of (B, 3, H, W) images."""
        features: Tensor = self.backbone((images - self.mean) / self.std)
        return features

    def forward(self, images: Tensor) -> Tensor:
        """(B, C) logits of (B, 3, H, W) images."""
        features = self.features(images)
        if torch.is_autocast_enabled(features.device.type):  # the head's distances need float32
            with torch.autocast(features.device.type, enabled=False):
                return self._logits(features.float())
        return self._logits(features)

    def _logits(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits


def build_classifier(config: RunConfig, num_classes: int, statistics: ChannelStatistics) -> Classifier:
    """A fresh classifier for a run: its backbone, and the head of its method in place of the last layer."""
    # Imported here so that a classifier can be defined, and loaded, without the method and backbone registries.
    from training import backbones, methods

    backbone = backbones.build(config.backbone, pretrained_weights=config.pretrained_weights)
    head = methods.find(config.method).make_head(backbone.num_features, num_classes)
    return Classifier(backbone, head, statistics.mean, statistics.std)
