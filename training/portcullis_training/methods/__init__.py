"""Methods, found by name: `methods/<name>.py` holds the head, the loss and the score of one method as `METHOD`.

A further method is added by adding a file; nothing here lists them.
"""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from portcullis_training.errors import ConfigError
from portcullis_training.methods.formulas.scores import SCORES

# Under this a logarithm would leave float32's normal range; a clamp there keeps loss and gradient finite.
SMALLEST_PROBABILITY = torch.finfo(torch.float32).tiny

Batches = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""Images (B, 3, H, W), float32 in [0, 1], and labels (B,), from the first on at every call."""
Total = Callable[[Tensor], Tensor]
"""The sum over all processes."""


class Network(Protocol):
    """As much of a classifier as a method may know."""

    head: nn.Module

    def features(self, images: Tensor) -> Tensor:
        """(B, d) of (B, 3, H, W)."""

    def eval(self) -> object: ...


class LastPass(NamedTuple):
    """What there is to set after the last step from."""

    network: Network
    """With the weights that ship, in evaluation mode."""
    train: Batches
    """This process's share of the training images, as they are."""
    validation: Batches
    """All validation images."""
    total: Total


class Method(ABC):
    """What one method contributes: a drop-in for a backbone's last layer, its loss and its score.

    Head, loss and score are all that most have; what follows them is for those that need it (docs/decisions/rivals.md).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    score_name: ClassVar[str]
    """The method's own score, which every bundle of it carries."""
    paper_scores: ClassVar[tuple[str, str] | None] = None
    """The scores of the paper's tables, for near sets and for far ones, where they are not the method's own."""
    entropic_scale: ClassVar[float] = 1.0
    """Multiplies the logits in the training loss only; it is gone at inference and before calibration."""
    in_two_steps: ClassVar[bool] = False
    """Whether the loss takes the probability and then its logarithm, as the IsoMax family asks."""

    rate: ClassVar[float] = 1.0
    """Multiplies the learning rate of all parameters."""
    frozen_learning_rate: ClassVar[float] = 1e-3
    """Of AdamW, for the head alone on centred features of length √d."""
    needs_whole_network: ClassVar[bool] = False
    """Whether it cannot begin with a head on frozen features."""
    can_mix: ClassVar[bool] = True
    """Whether it may be trained on mixed images."""
    has_penalty: ClassVar[bool] = False
    export_refusal: ClassVar[str | None] = None
    """Why it cannot be one graph, where it cannot."""

    @abstractmethod
    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        """The layer from features (B, d) to logits (B, C)."""

    def start_head(self, head: nn.Module, class_means: Tensor) -> None:  # noqa: B027  most have nothing to do
        """Let a fresh head start from the mean features (C, d) of the classes; by default it starts as it is."""

    def change_backbone(self, backbone: nn.Module) -> None:  # noqa: B027
        """Change a fresh backbone by torch's parametrizations, which export folds into plain weights."""

    def undecayed(self, head: nn.Module) -> Iterable[nn.Parameter]:
        """Parameters of the method's head that weight decay spares."""
        return ()

    def training_probabilities(self, logits: Tensor) -> Tensor:
        """softmax(E · L), the probabilities that the loss is taken of."""
        return (self.entropic_scale * logits).softmax(dim=1)

    def training_log_probabilities(self, logits: Tensor) -> Tensor:
        """log softmax(E · L), in one step or in two, yet never inf or NaN."""
        if not self.in_two_steps:
            return functional.log_softmax(self.entropic_scale * logits, dim=1)
        return self.training_probabilities(logits).clamp(min=SMALLEST_PROBABILITY).log()

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean over the batch of −log p_y."""
        return functional.nll_loss(self.training_log_probabilities(logits), labels)

    def penalty(self, logits: Tensor, images: Tensor, deviations: Tensor | float) -> Tensor:
        """Added to the loss where `has_penalty`; `images` have a gradient, and `deviations` normalise them."""
        return logits.new_zeros(())

    def after_step(  # noqa: B027
        self, network: Network, images: Tensor, labels: Tensor, total: Total
    ) -> None:
        """What changes with each step but by no gradient; the images and labels of this process."""

    def finish(self, last: LastPass) -> None:  # noqa: B027
        """What is set once, after the last step, for the weights that ship."""

    def scores(self, logits: Tensor) -> dict[str, Tensor]:
        """Every score of these logits by name; higher is more familiar."""
        return {name: score(logits) for name, score in SCORES.items()}


class LooksTwice(Method):
    """A method whose score is that of a changed image: logits come from the image as it is, the rest from the other."""

    @abstractmethod
    def perturbed(self, network: Network, images: Tensor) -> Tensor:
        """The images to score."""


def names() -> list[str]:
    """The names of all methods, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)


def find(name: str) -> Method:
    """The method of that name; an unknown one is refused with those that exist."""
    if name not in names():
        raise ConfigError(f"expected a method out of {', '.join(names())}, got {name!r}")
    method: Method = importlib.import_module(f"{__name__}.{name}").METHOD
    return method
