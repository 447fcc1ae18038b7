"""Scaled Cosine (Techapanurak, Suganuma, Okatani 2020, arXiv 1905.10628)."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from portcullis_training.methods import Method
from portcullis_training.methods.formulas.answers import Answer, Head
from portcullis_training.methods.formulas.cosines import ClassCosines, NormedScalar

LARGEST_EXPONENT = 30.0  # of the scale: far beyond what training reaches, and far from overflow


class ScaledCosineHead(Head):
    """s(f) · cos(f, w_j), with the cosines beside them."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.cosines = ClassCosines(num_features, num_classes)
        self.exponent = NormedScalar(num_features)

    def answer(self, features: Tensor) -> Answer:
        """s = exp(BN(w_s·f + b_s)), which calibrates the class and says nothing in the score."""
        with torch.autocast(features.device.type, enabled=False):
            own = features.to(self.cosines.weight.dtype)
            cosines = self.cosines(own)  # (B, C)
            scale = self.exponent(own).clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()  # (B, 1)
            return Answer(scale * cosines, cosines)


class ScaledCosine(Method):
    """Cross-entropy of the scaled cosines, and the largest cosine, unscaled, as the score."""

    name = "scaled_cosine"
    title = "Scaled Cosine"
    score_name = "max_cosine"

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        return ScaledCosineHead(num_features, num_classes)

    def start_head(self, head: nn.Module, class_means: Tensor) -> None:
        assert isinstance(head, ScaledCosineHead)
        head.cosines.start_at(class_means)

    def undecayed(self, head: nn.Module) -> Iterable[nn.Parameter]:
        """The class directions: their length means nothing, and decay would only raise their learning rate."""
        assert isinstance(head, ScaledCosineHead)
        return [head.cosines.weight]


METHOD = ScaledCosine()
