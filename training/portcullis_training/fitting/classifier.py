"""The classifier: normalisation, backbone and head as one trainable whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from portcullis_training.backbones.features import Backbone, start_as_identity
from portcullis_training.data.statistics import ChannelStatistics
from portcullis_training.methods.formulas.answers import answer_of
from portcullis_training.methods.formulas.centring import CentredHead

if TYPE_CHECKING:
    from portcullis_training.config import RunConfig


class Reading(NamedTuple):
    """All that a score is made of, of B images."""

    logits: Tensor  # (B, C)
    features: Tensor  # (B, d)
    middle: Tensor  # (B, m), spatial means of a block in the middle of the backbone
    beside: Tensor  # (B, k), what the head shows beside its logits; k is 0 for most methods


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

    def read(self, images: Tensor) -> Reading:
        """Logits, features and the spatial means of the backbone's middle block, in one pass and in float32."""
        features, middle = self.backbone.features_and_middle((images - self.mean) / self.std)
        logits, beside = answer_of(self.head, features.float())
        return Reading(logits, features.float(), middle.float(), beside)

    def _logits(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits


def build_classifier(config: RunConfig, num_classes: int, statistics: ChannelStatistics) -> Classifier:
    """A fresh classifier for a run: its backbone, and the head of its method in place of the last layer."""
    # Imported here so that a classifier can be defined, and loaded, without the method and backbone registries.
    from portcullis_training import backbones, methods
    from portcullis_training.fitting.ensemble import together

    if config.members > 1:
        single = config.model_copy(update={"members": 1})
        return together([build_classifier(single, num_classes, statistics) for _ in range(config.members)])
    backbone = backbones.build(config.backbone, pretrained_weights=config.pretrained_weights)
    if config.initialisation == "identity":
        start_as_identity(backbone)
    method = methods.find(config.method)
    method.change_backbone(backbone)
    head = method.make_head(backbone.num_features, num_classes)
    if config.frozen:
        head = CentredHead(head, backbone.num_features)
    return Classifier(backbone, head, statistics.mean, statistics.std)
