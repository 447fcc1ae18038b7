"""Cosines to class directions and a scalar of the features that sharpens them, as Scaled Cosine and GODIN have both."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

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
        """(B, 1). In training a single image, which has no deviation, is standardised by those before it."""
        raw = self.linear(features)
        if self.norm.training and len(raw) == 1:
            mean, variance = self.norm.running_mean, self.norm.running_var
            return functional.batch_norm(raw, mean, variance, self.norm.weight, self.norm.bias, eps=self.norm.eps)
        normed: Tensor = self.norm(raw)
        return normed
