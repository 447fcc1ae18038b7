"""The parts of a score, one module each: from what a classifier reads of images to one number an image.

Higher is more familiar, of every part. Plain operators that every provider has, in float32; what is fitted comes in as
constants. Nothing here knows how they were found.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from portcullis_training.fitting.classifier import Reading
from portcullis_training.methods.formulas.prototypes import directions
from portcullis_training.methods.formulas.scores import BESIDE_SCORES, SCORES

Constants = dict[str, Tensor]


class OwnScore(nn.Module):
    """The score that comes with the method: MMLES of logits divided by a temperature, or the largest cosine."""

    def __init__(self, name: str, temperature: float) -> None:
        super().__init__()
        self.name = name
        self.is_beside = name in BESIDE_SCORES
        self.formula = BESIDE_SCORES[name] if self.is_beside else SCORES[name]
        self.temperature = 1.0 if self.is_beside else temperature  # what is beside the logits has none

    def forward(self, reading: Reading) -> Tensor:
        """(B,)."""
        if self.is_beside:
            return self.formula(reading.beside)
        return self.formula(reading.logits if self.temperature == 1 else reading.logits / self.temperature)


class NormGap(nn.Module):
    """‖f‖ · (max_j L_j − mean_j L_j); of DisMax's logits the gap is mean D − min D, and the head has dropped ‖f‖."""

    def forward(self, reading: Reading) -> Tensor:
        """(B,)."""
        gap = reading.logits.amax(dim=1) - reading.logits.mean(dim=1)
        return reading.features.norm(dim=1) * gap


class Gaussian(nn.Module):
    """−(x − μ)ᵀ Σ⁻¹ (x − μ), where Σ is known along some directions and has one variance along all others.

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
        self.has_rest = bool(rest > 0)

    def squared(self, centred: Tensor) -> Tensor:
        """(B,) squared lengths of (B, d) vectors under Σ⁻¹."""
        along = centred @ self.axes  # (B, r)
        squared = ((along * along) @ self.scales).squeeze(1)
        return squared + self.rest * (centred * centred).sum(dim=1) if self.has_rest else squared


class MiddleDistance(Gaussian):
    """Of the spatial means of the middle block: one Gaussian for all classes."""

    def forward(self, reading: Reading) -> Tensor:
        """(B,)."""
        return -self.squared(reading.middle - self.centre)


class ClassDistance(Gaussian):
    """Of the normalised features, to the nearest of the class means, one Σ for all.

    (x − μ_c)ᵀ Σ⁻¹ (x − μ_c) is xᵀ Σ⁻¹ x and a linear function of x for each class, given as weights and offsets.
    """

    weights: Tensor
    offsets: Tensor

    def __init__(
        self, centre: Tensor, axes: Tensor, scales: Tensor, rest: Tensor, weights: Tensor, offsets: Tensor
    ) -> None:
        super().__init__(centre, axes, scales, rest)
        self.register_buffer("weights", weights)  # (d, C)
        self.register_buffer("offsets", offsets)  # (C,)

    def forward(self, reading: Reading) -> Tensor:
        """(B,)."""
        centred = directions(reading.features) - self.centre
        return -(self.squared(centred) + (centred @ self.weights + self.offsets).amin(dim=1))


class Neighbours(nn.Module):
    """The k-th largest cosine to a bank of training features (Sun et al. 2022)."""

    bank: Tensor

    def __init__(self, bank: Tensor, rank: Tensor) -> None:
        super().__init__()
        self.register_buffer("bank", bank)  # (d, n), directions
        self.rank = int(rank)

    def forward(self, reading: Reading) -> Tensor:
        """(B,)."""
        cosines = directions(reading.features) @ self.bank  # (B, n)
        return cosines.topk(self.rank, dim=1).values[:, -1]


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
