"""DUQ (van Amersfoort et al. 2020, arXiv 2003.02037): a radial kernel around a moving centroid a class."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from portcullis_training.methods import Method, Network, Total

LENGTH_SCALE = 0.1
"""σ of the kernel."""
MOMENTUM = 0.999
"""γ: what a step leaves of the centroids."""
PENALTY = 0.5
"""λ, on CIFAR-10 in the authors' experiments."""
FIRST_COUNT = 13.0
"""Images that each class begins with, as in the authors' code."""
MAX_EMBEDDING = 128
"""Rows of W_c; our choice, for there are C · m · d weights."""
CLOSEST = 1e-6  # in log K: where an image lies on the centroid of a wrong class, the loss would be infinite


class DuqHead(nn.Module):
    """log K_c, where K_c = exp(−mean((W_c f − e_c)²) / 2σ²) and e_c = sums_c / counts_c."""

    counts: Tensor
    sums: Tensor

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        size = min(num_features, MAX_EMBEDDING)
        spread = math.sqrt(2 / (num_classes * num_features))
        self.weight = nn.Parameter(spread * torch.randn(num_classes, size, num_features))
        self.register_buffer("counts", torch.full((num_classes,), FIRST_COUNT))
        self.register_buffer("sums", 0.05 * FIRST_COUNT * torch.randn(num_classes, size))

    def embeddings(self, features: Tensor) -> Tensor:
        """W_c f for every class: (B, C, m)."""
        num_classes, size, num_features = self.weight.shape
        flat = features.to(self.weight.dtype) @ self.weight.reshape(-1, num_features).T
        return flat.view(-1, num_classes, size)

    def forward(self, features: Tensor) -> Tensor:
        """(B, C). The logarithm does not underflow where K does, far from every centroid."""
        with torch.autocast(features.device.type, enabled=False):
            differences = self.embeddings(features) - self.sums / self.counts[:, None]
            return -(differences * differences).mean(dim=2) / (2 * LENGTH_SCALE**2)

    @torch.no_grad()
    def move(self, features: Tensor, labels: Tensor, total: Total) -> None:
        """Let the centroids follow the images of their classes, those of all processes."""
        chosen = functional.one_hot(labels, len(self.counts)).to(self.sums.dtype)  # (B, C)
        seen = torch.einsum("bc,bcm->cm", chosen, self.embeddings(features))
        columns = total(torch.cat([chosen.sum(dim=0)[:, None], seen], dim=1))  # (C, 1 + m)
        self.counts.lerp_(columns[:, 0], 1 - MOMENTUM)
        self.sums.lerp_(columns[:, 1:], 1 - MOMENTUM)


class Duq(Method):
    """Binary cross-entropy of every K_c, a penalty that keeps ‖∇_x Σ K‖ near 1, and max K as the score.

    The score is taken as max log K, which orders images in the same way.
    """

    name = "duq"
    title = "DUQ"
    score_name = "max_logit"
    rate = 0.5  # 0.05 where the others have 0.1
    needs_whole_network = True
    can_mix = False
    has_penalty = True

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        return DuqHead(num_features, num_classes)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean over images and classes of −log K_y and −log(1 − K_c) for all others."""
        closest = logits.clamp(max=-CLOSEST)
        others = (-torch.expm1(closest)).log()  # log(1 − K)
        is_own = functional.one_hot(labels, logits.shape[1]).bool()
        return -torch.where(is_own, logits, others).mean()

    def penalty(self, logits: Tensor, images: Tensor, deviations: Tensor | float) -> Tensor:
        """λ · mean (‖∇_x Σ_c K_c‖ − 1)² over normalised images x."""
        (gradient,) = torch.autograd.grad(logits.exp().sum(), images, create_graph=True)
        lengths = (gradient * deviations).flatten(1).square().sum(dim=1).clamp(min=1e-12).sqrt()
        return PENALTY * (lengths - 1).square().mean()

    @torch.no_grad()
    def after_step(self, network: Network, images: Tensor, labels: Tensor, total: Total) -> None:
        """With the weights after the step, as they would answer."""
        assert isinstance(network.head, DuqHead) and isinstance(network, nn.Module)
        was_training = network.training
        network.eval()
        network.head.move(network.features(images), labels, total)
        network.train(was_training)


METHOD = Duq()
