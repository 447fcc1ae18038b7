"""Methods, found by name: `methods/<name>.py` holds the head, the loss and the score of one method as `METHOD`.

A further method is added by adding a file; nothing here lists them.
"""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from portcullis_training.errors import ConfigError
from portcullis_training.methods.formulas.scores import SCORES

# Under this a logarithm would leave float32's normal range; a clamp there keeps loss and gradient finite.
SMALLEST_PROBABILITY = torch.finfo(torch.float32).tiny


class Method(ABC):
    """What one method contributes: a drop-in for a backbone's last layer, its loss and its score."""

    name: ClassVar[str]
    title: ClassVar[str]
    score_name: ClassVar[str]
    """The method's own score, which every bundle of it carries; a key of `scores()`."""
    entropic_scale: ClassVar[float] = 1.0
    """Multiplies the logits in the training loss only; it is gone at inference and before calibration."""

    frozen_learning_rate: ClassVar[float] = 1e-3
    """Of AdamW, for the head alone on centred features of length √d."""

    @abstractmethod
    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        """The layer from features (B, d) to logits (B, C)."""

    def start_head(self, head: nn.Module, class_means: Tensor) -> None:  # noqa: B027  most have nothing to do
        """Let a fresh head start from the mean features (C, d) of the classes; by default it starts as it is."""

    def training_probabilities(self, logits: Tensor) -> Tensor:
        """softmax(E · L), the probabilities that the loss is taken of."""
        return (self.entropic_scale * logits).softmax(dim=1)

    def training_log_probabilities(self, logits: Tensor) -> Tensor:
        """Probability and logarithm as two steps, as the IsoMax family asks, yet never inf or NaN."""
        return self.training_probabilities(logits).clamp(min=SMALLEST_PROBABILITY).log()

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean over the batch of −log p_y."""
        return functional.nll_loss(self.training_log_probabilities(logits), labels)

    def scores(self, logits: Tensor) -> dict[str, Tensor]:
        """Every score of these logits by name; higher is more familiar."""
        return {name: score(logits) for name, score in SCORES.items()}

    def score(self, logits: Tensor) -> Tensor:
        """The method's own score; higher is more familiar."""
        return SCORES[self.score_name](logits)


def names() -> list[str]:
    """The names of all methods, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)


def find(name: str) -> Method:
    """The method of that name; an unknown one is refused with those that exist."""
    if name not in names():
        raise ConfigError(f"expected a method out of {', '.join(names())}, got {name!r}")
    method: Method = importlib.import_module(f"{__name__}.{name}").METHOD
    return method
