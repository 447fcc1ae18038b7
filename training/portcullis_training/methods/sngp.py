"""SNGP (Liu et al. 2020, arXiv 2006.10108): a bounded backbone under an approximate Gaussian process."""

import math

import torch
from torch import Tensor, nn

from portcullis_training.methods import LastPass, Method
from portcullis_training.methods.formulas import spectral
from portcullis_training.methods.formulas.answers import Answer, Head

BOUND = 6.0
NUM_RANDOM_FEATURES = 1024
MEAN_FIELD, MEAN_FIELD_OF_MANY = 20.0, 7.5
"""κ, as the authors have it for CIFAR-10 and for CIFAR-100."""
MANY_CLASSES = 100


class SngpHead(Head):
    """φ(f)·β, and once the covariance is known, the same by √(1 + κ · variance), with the variance beside it.

    φ = √(2/D) · cos(W_r f + b_r), W_r fixed. Its entries are N(0, 1/d): features have lengths of about √d, and the
    kernel must tell them apart without calling all of them strangers to one another.
    """

    projection: Tensor
    phase: Tensor
    covariance: Tensor

    def __init__(self, num_features: int, num_classes: int, size: int = NUM_RANDOM_FEATURES) -> None:
        super().__init__()
        self.mean_field = MEAN_FIELD_OF_MANY if num_classes >= MANY_CLASSES else MEAN_FIELD
        self.beta = nn.Parameter(torch.randn(num_classes, size))
        self.register_buffer("projection", torch.randn(size, num_features) / math.sqrt(num_features))
        self.register_buffer("phase", 2 * math.pi * torch.rand(size))
        self.register_buffer("covariance", torch.eye(size))

    def random_features(self, features: Tensor) -> Tensor:
        """φ: (B, D)."""
        waves = (features.to(self.projection.dtype) @ self.projection.T + self.phase).cos()
        return math.sqrt(2 / len(self.phase)) * waves

    def answer(self, features: Tensor) -> Answer:
        """In training the plain logits, which the loss is of."""
        with torch.autocast(features.device.type, enabled=False):
            random_features = self.random_features(features)
            logits = random_features @ self.beta.T
            if self.training:
                return Answer(logits, logits[:, :0])
            variance = ((random_features @ self.covariance) * random_features).sum(dim=1, keepdim=True)  # (B, 1)
            return Answer(logits / (1 + self.mean_field * variance.clamp(min=0)).sqrt(), variance)

    @torch.no_grad()
    def set_precision(self, precision: Tensor) -> None:
        """Σ = (I + Σ_i φ_i φ_iᵀ)⁻¹, through Cholesky in float64: the matrix is symmetric, and far from singular."""
        factor = torch.linalg.cholesky(precision.double().cpu())
        self.covariance.copy_(torch.cholesky_inverse(factor))


class Sngp(Method):
    """Cross-entropy, and the largest probability of the logits as the variance tempers them as the score."""

    name = "sngp"
    title = "SNGP"
    score_name = "max_probability"
    needs_whole_network = True

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        return SngpHead(num_features, num_classes)

    def change_backbone(self, backbone: nn.Module) -> None:
        """Bound every layer, so that images that differ keep features that differ, and no more than they do."""
        spectral.bound_layers(backbone, BOUND)

    @torch.no_grad()
    def finish(self, last: LastPass) -> None:
        """The precision over all training images, for the weights that ship."""
        assert isinstance(last.network, nn.Module)
        spectral.settle(last.network)
        head = last.network.head
        assert isinstance(head, SngpHead)
        moments = torch.zeros_like(head.covariance)
        for images, _ in last.train():
            random_features = head.random_features(last.network.features(images))
            moments += random_features.T @ random_features
        head.set_precision(torch.eye(len(moments), device=moments.device) + last.total(moments))


METHOD = Sngp()
