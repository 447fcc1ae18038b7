"""Ensembles: M networks of one method that were trained apart, put together as one classifier.

Every stage after the fit takes it for a classifier like any other: its features are those of all members side by side,
its logits the logarithm of their mean probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from portcullis_training import methods
from portcullis_training.backbones.features import Backbone
from portcullis_training.config import RunConfig
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.methods import Method
from portcullis_training.methods.formulas.answers import answer_of


class EnsembleBackbone(Backbone):
    """The features of all members, side by side."""

    def __init__(self, members: Sequence[Backbone]) -> None:
        super().__init__(nn.Identity(), nn.Identity(), sum(member.num_features for member in members))
        self.members = nn.ModuleList(members)

    def forward(self, images: Tensor) -> Tensor:
        """(B, d_1 + … + d_M) of (B, 3, H, W)."""
        return torch.cat([member(images) for member in self.members], dim=1)

    def features_and_middle(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features, and spatial means of the middle blocks, of all members."""
        features, middle = zip(*(member.features_and_middle(images) for member in self.members), strict=True)  # type: ignore[operator]
        return torch.cat(features, dim=1), torch.cat(middle, dim=1)


class EnsembleHead(nn.Module):
    """log of the mean over members of softmax(L), each of its own part of the features."""

    def __init__(self, members: Sequence[nn.Module], sizes: Sequence[int]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.sizes = list(sizes)

    def forward(self, features: Tensor) -> Tensor:
        """(B, C). Probabilities are averaged, not logits: a member that is sure does not outvote all others."""
        parts = features.split(self.sizes, dim=1)
        answers = [answer_of(member, part).logits for member, part in zip(self.members, parts, strict=True)]
        log_probabilities = torch.stack([logits.log_softmax(dim=1) for logits in answers])  # (M, B, C)
        return log_probabilities.logsumexp(dim=0) - math.log(len(answers))


class Ensemble(Method):
    """M networks of a method; it is trained member by member, so there is no head or loss of its own."""

    score_name = "max_probability"

    def __init__(self, member: Method, num_members: int) -> None:
        self.name = f"{member.name}×{num_members}"  # type: ignore[misc]
        self.title = f"{member.title} ×{num_members}"  # type: ignore[misc]
        self.export_refusal = member.export_refusal  # type: ignore[misc]

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        raise NotImplementedError("an ensemble's head is made of those of its members")


def method_of(config: RunConfig) -> Method:
    """The method of a run, or the ensemble of it."""
    method = methods.find(config.method)
    return method if config.members == 1 else Ensemble(method, config.members)


def together(members: Sequence[Classifier]) -> Classifier:
    """One classifier; the members normalise alike, since they saw the same training images."""
    backbone = EnsembleBackbone([member.backbone for member in members])
    head = EnsembleHead([member.head for member in members], [member.backbone.num_features for member in members])
    mean, std = (values.flatten().tolist() for values in (members[0].mean, members[0].std))
    return Classifier(backbone, head, mean, std)


def first_network(backbone: Backbone) -> Backbone:
    """One of an ensemble's backbones, or the one that there is."""
    if not isinstance(backbone, EnsembleBackbone):
        return backbone
    first = backbone.members[0]
    assert isinstance(first, Backbone)
    return first
