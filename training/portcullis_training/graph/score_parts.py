"""The parts of a score, one module each: from what a classifier reads of images to one number an image.

Higher is more familiar, of every part. Plain operators that every provider has, in float32, and few of them: of a
single small image each costs more to start than to compute. What is fitted comes in as constants. Nothing here knows
how they were found.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from portcullis_training.fitting.classifier import Reading
from portcullis_training.methods.formulas.prototypes import directions
from portcullis_training.methods.formulas.scores import BESIDE_SCORES, SCORES

Constants = dict[str, Tensor]
WIDE = 512
"""Vectors of which a square matrix is more to read for every image than it saves in operators."""


class OwnScore(nn.Module):
    """The score that comes with the method: MMLES of logits divided by a temperature, or the largest cosine."""

    def __init__(self, name: str, temperature: float) -> None:
        super().__init__()
        self.name = name
        self.is_beside = name in BESIDE_SCORES
        self.formula = BESIDE_SCORES[name] if self.is_beside else SCORES[name]
        self.temperature = 1.0 if self.is_beside else temperature  # what is beside the logits has none

    def forward(self, reading: Reading) -> Tensor:
        """(B, 1), as every part."""
        if self.is_beside:
            return self.formula(reading.beside).unsqueeze(1)
        logits = reading.logits if self.temperature == 1 else reading.logits / self.temperature
        return self.formula(logits).unsqueeze(1)


class NormGap(nn.Module):
    """‖f‖ · (max_j L_j − mean_j L_j); of DisMax's logits the gap is mean D − min D, and the head has dropped ‖f‖."""

    def forward(self, reading: Reading) -> Tensor:
        """(B, 1)."""
        gap = reading.logits.amax(dim=1) - reading.logits.mean(dim=1)  # both are terms of MMLES too
        return reading.features.norm(dim=1, keepdim=True) * gap.unsqueeze(1)  # and so is the length of its head


class ThinDistance(nn.Module):
    """(x − μ)ᵀ Σ⁻¹ (x − μ), where Σ is known along some directions and has one variance along all others.

    With the directions u_i of variance λ_i and the variance σ² of the rest, the form is
    Σ_i (u_i·x)² (1/λ_i − 1/σ²) + ‖x‖²/σ²: one thin matrix product. Where the directions span the space, 1/σ² is 0.
    """

    centre: Tensor
    axes: Tensor
    scales: Tensor
    rest: Tensor

    def __init__(self, centre: Tensor, axes: Tensor, scales: Tensor, rest: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)  # (d,)
        self.register_buffer("axes", axes)  # (d, r)
        self.register_buffer("scales", scales)  # (r, 1)
        self.register_buffer("rest", rest)  # ()

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, 1) of (B, d)."""
        centred = vectors - self.centre
        along = centred @ self.axes  # (B, r)
        return (along * along) @ self.scales + self.rest * (centred * centred).sum(dim=1, keepdim=True)


class RootDistance(nn.Module):
    """The same as ‖R x − R μ‖² with the symmetric root R of Σ⁻¹: a square matrix, and a third of the operators."""

    root: Tensor
    shift: Tensor

    def __init__(self, centre: Tensor, axes: Tensor, scales: Tensor, rest: Tensor) -> None:
        super().__init__()
        known, others = (scales + rest).double().clamp(min=0).sqrt(), rest.double().sqrt()
        axes = axes.double()
        root = (axes * (known - others).T) @ axes.T + others * torch.eye(len(axes), dtype=axes.dtype)
        self.register_buffer("root", root.float())  # (d, d)
        self.register_buffer("shift", -(root @ centre.double()).float())  # (d,)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, 1) of (B, d)."""
        return functional.linear(vectors, self.root, self.shift).square().sum(dim=1, keepdim=True)


def squared_distance(centre: Tensor, axes: Tensor, scales: Tensor, rest: Tensor) -> nn.Module:
    """Squared distances under Σ⁻¹, in the form that costs less."""
    form = ThinDistance if len(centre) >= WIDE else RootDistance
    return form(centre, axes, scales, rest)


class MiddleDistance(nn.Module):
    """Minus the squared distance of the middle block's spatial means: one Gaussian for all classes."""

    def __init__(self, **gaussian: Tensor) -> None:
        super().__init__()
        self.squared = squared_distance(**gaussian)

    def forward(self, reading: Reading) -> Tensor:
        """(B, 1)."""
        negative: Tensor = -self.squared(reading.middle)
        return negative


class ClassDistance(nn.Module):
    """Minus the squared distance of the normalised features to the nearest of the class means, one Σ for all.

    (x − μ_c)ᵀ Σ⁻¹ (x − μ_c) is xᵀ Σ⁻¹ x and a linear function of x for each class, given as weights and offsets.
    """

    centre: Tensor
    weights: Tensor
    offsets: Tensor

    def __init__(self, centre: Tensor, weights: Tensor, offsets: Tensor, **shape: Tensor) -> None:
        super().__init__()
        self.squared = squared_distance(centre, **shape)
        self.register_buffer("centre", centre)  # (d,)
        self.register_buffer("weights", weights)  # (d, C)
        self.register_buffer("offsets", offsets)  # (C,)

    def forward(self, reading: Reading) -> Tensor:
        """(B, 1)."""
        units = directions(reading.features)
        linear = (units - self.centre) @ self.weights + self.offsets  # (B, C)
        negative: Tensor = -(self.squared(units) + linear.amin(dim=1, keepdim=True))
        return negative


class Neighbours(nn.Module):
    """The k-th largest cosine to a bank of training features (Sun et al. 2022)."""

    bank: Tensor

    def __init__(self, bank: Tensor, rank: Tensor) -> None:
        super().__init__()
        self.register_buffer("bank", bank)  # (d, n), directions
        self.rank = int(rank)

    def forward(self, reading: Reading) -> Tensor:
        """(B, 1)."""
        cosines = directions(reading.features) @ self.bank  # (B, n)
        return cosines.topk(self.rank, dim=1).values[:, -1:]


FITTED_PARTS: dict[str, type[nn.Module]] = {
    "norm_gap": NormGap,
    "features": ClassDistance,
    "middle": MiddleDistance,
    "neighbours": Neighbours,
}
"""By name, beside the method's own score."""


def make_part(name: str, constants: Constants) -> nn.Module:
    """A part with its constants, float32."""
    return FITTED_PARTS[name](**{key: value.to(torch.float32) for key, value in constants.items()})
