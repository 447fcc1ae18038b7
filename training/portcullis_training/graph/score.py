"""The score that gates, as a module of the served graph: a weighted sum of standardised parts, or one part alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from portcullis.bundle.manifest import FITTED, ScoreInfo
from portcullis_training.fitting.classifier import Reading
from portcullis_training.graph.score_parts import Constants, OwnScore, make_part


class Score(nn.Module):
    """What `info` says, computed: Σ_k weight_k · (part_k − mean_k) / deviation_k, and the parts."""

    slopes: Tensor
    offset: Tensor

    def __init__(self, info: ScoreInfo, own: OwnScore, constants: Mapping[str, Constants]) -> None:
        super().__init__()
        self.info = info
        self.own = own
        self.constants = dict(constants)
        self.parts = nn.ModuleList(make_part(name, constants[name]) for name in info.parts[1:])
        terms = list(zip(info.weights, info.means, info.deviations, strict=True))
        self.register_buffer("slopes", torch.tensor([[weight / deviation for weight, _, deviation in terms]]))  # (1, K)
        offset = sum(weight * mean / deviation for weight, mean, deviation in terms)
        self.register_buffer("offset", torch.tensor([-offset]))  # (1,)

    def forward(self, reading: Reading) -> tuple[Tensor, Tensor]:
        """The score (B,) and its parts (B, K)."""
        parts = torch.cat([part(reading) for part in (self.own, *self.parts)], dim=1)
        if self.info.name != FITTED:  # as it is, so that a threshold on it means what it says
            return parts[:, self.info.parts.index(self.info.name)], parts
        return functional.linear(parts, self.slopes, self.offset).squeeze(1), parts

    def lean(self) -> Score:
        """The same score without the parts that have no weight; the method's own stays in every answer."""
        info = self.info
        kept = [0, *(number for number in range(1, len(info.parts)) if info.weights[number] > 0)]
        chosen = {
            name: tuple(getattr(info, name)[number] for number in kept)
            for name in ("parts", "means", "deviations", "weights")
        }
        return Score(
            info.model_copy(update=chosen), self.own, {name: self.constants[name] for name in chosen["parts"][1:]}
        )


def one_part(parts: tuple[str, ...], chosen: str, fitted_on: str) -> ScoreInfo:
    """One of the parts as the score, in its own unit."""
    return ScoreInfo(
        name=chosen,
        parts=parts,
        means=(0.0,) * len(parts),
        deviations=(1.0,) * len(parts),
        weights=tuple(float(part == chosen) for part in parts),
        fitted_on=fitted_on,
    )


def own_score(name: str, temperature: float = 1.0) -> Score:
    """A method's own score alone, which has no constants."""
    return Score(one_part((name,), name, "nothing: it has no constants"), OwnScore(name, temperature), {})
