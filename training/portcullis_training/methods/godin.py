"""Generalised ODIN (Hsu et al. 2020, arXiv 2002.11297) with cosines as h, its DeConf-C, without preprocessing."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from portcullis_training.methods import Method
from portcullis_training.methods.formulas.answers import Answer, Head
from portcullis_training.methods.formulas.cosines import ClassCosines, NormedScalar

SMALLEST_G = 1e-6  # a sigmoid underflows to 0, by which nothing can be divided


class GodinHead(Head):
    """h_j / g, with the h_j beside them."""

    def __init__(self, num_features: int, num_classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.h = ClassCosines(num_features, num_classes)
        self.g = NormedScalar(num_features)

    def answer(self, features: Tensor) -> Answer:
        """g = σ(BN(w_g·f + b_g)), the share of images that are like these at all; h is left with the class."""
        with torch.autocast(features.device.type, enabled=False):
            kept = self.dropout(features.to(self.h.weight.dtype))
            h = self.h(kept)  # (B, C)
            return Answer(h / self.g(kept).sigmoid().clamp(min=SMALLEST_G), h)


class Godin(Method):
    """Cross-entropy of h / g, and the largest h as the score."""

    name = "godin"
    title = "GODIN"
    score_name = "max_h"
    dropout = 0.0

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        return GodinHead(num_features, num_classes, self.dropout)

    def start_head(self, head: nn.Module, class_means: Tensor) -> None:
        assert isinstance(head, GodinHead)
        head.h.start_at(class_means)

    def undecayed(self, head: nn.Module) -> Iterable[nn.Parameter]:
        """All of h, as its authors have it."""
        assert isinstance(head, GodinHead)
        return head.h.parameters()


METHOD = Godin()
