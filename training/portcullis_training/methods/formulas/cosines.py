"""Cosines to class directions and a scalar of the features that sharpens them, as Scaled Cosine and GODIN have both."""

import math

import torch
from torch import Tensor, nn

from portcullis_training.methods.formulas.prototypes import directions


class ClassCosines(nn.Module):
    """cos(f, w_j) to one learned direction a class."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_classes, num_features) / math.sqrt(num_features))

    @torch.no_grad()
    def start_at(self, class_means: Tensor) -> None:
        """Put every direction where its class is."""
        self.weight.copy_(class_means)

    def forward(self, features: Tensor) -> Tensor:
        """(B, C)."""
        return directions(features) @ directions(self.weight).T


class NormedScalar(nn.Module):
    """BN(w·f + b): one number an image, standardised over the batch."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, 1)
        self.norm = nn.BatchNorm1d(1)

    def forward(self, features: Tensor) -> Tensor:
        """(B, 1)."""
        normed: Tensor = self.norm(self.linear(features))
        return normed
