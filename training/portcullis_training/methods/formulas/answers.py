"""What a head answers: logits, and for some methods something beside them that their score is made of."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn

from portcullis_training.methods.formulas.centring import CentredHead


class Answer(NamedTuple):
    """Of B images."""

    logits: Tensor  # (B, C)
    beside: Tensor  # (B, k): cosines, h, a variance; k is 0 for most methods


class Head(nn.Module, ABC):
    """A head that has something to say beside its logits."""

    @abstractmethod
    def answer(self, features: Tensor) -> Answer:
        """Logits and what is beside them, of features (B, d)."""

    def forward(self, features: Tensor) -> Tensor:
        """(B, C) logits."""
        return self.answer(features).logits


def answer_of(head: nn.Module, features: Tensor) -> Answer:
    """The answer of any head; most have no column beside their logits."""
    if isinstance(head, CentredHead):
        return answer_of(head.head, head.centred(features))
    return head.answer(features) if isinstance(head, Head) else Answer(head(features), features[:, :0])


def innermost(head: nn.Module) -> nn.Module:
    """The method's own head, where features are centred before it."""
    return head.head if isinstance(head, CentredHead) else head
