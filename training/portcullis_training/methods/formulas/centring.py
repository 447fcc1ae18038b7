"""Features around their mean, for a head on a backbone that was trained for something else.

Pretrained features are all positive and nearly parallel: seen from the origin, every photo lies in one direction, and a
head that looks at directions has little to turn by. Seen from their mean they lie in all directions.

There are more of them than photos of a class, so that a head can know its photos by heart. In training it is therefore
shown half of the features at a time, and answers more photos rightly that it has not seen (docs/photos.md).
"""

import math

import torch
from torch import Tensor, nn

DROPPED = 0.5


class CentredHead(nn.Module):
    """A head behind (f − μ) · k, where k brings the features to a mean length of √d; μ and k are set, not learned."""

    mean: Tensor
    scale: Tensor

    def __init__(self, head: nn.Module, num_features: int) -> None:
        super().__init__()
        self.head = head
        self.dropout = nn.Dropout(DROPPED)
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("scale", torch.ones(()))

    @torch.no_grad()
    def fit(self, features: Tensor) -> None:
        """Set μ and k from training features (N, d)."""
        self.mean.copy_(features.mean(dim=0))
        lengths = (features - self.mean).norm(dim=1)
        self.scale.copy_(math.sqrt(features.shape[1]) / lengths.mean().clamp(min=1e-12))

    def centred(self, features: Tensor) -> Tensor:
        """(B, d)."""
        return (features - self.mean) * self.scale

    def forward(self, features: Tensor) -> Tensor:
        """(B, C) logits."""
        logits: Tensor = self.head(self.dropout(self.centred(features)))
        return logits
