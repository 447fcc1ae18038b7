"""The mean in DisMax's logits cancels in its loss: by arithmetic that is exact it changes nothing, by float32 a little.

The paper remarks that IsoMax+ and DisMax train to different results although the mean cancels. What differs besides
rounding is the scale: IsoMax+ has |s| where DisMax has |s| / √2, so that the same step of s is a larger one.
"""

import math

import pytest
import torch
from torch import Tensor

from portcullis_training import methods
from portcullis_training.methods.dismax import DisMaxHead
from portcullis_training.methods.isomaxplus import IsoMaxPlusHead

METHOD = methods.find("dismax")
NUM_CLASSES, NUM_FEATURES = 5, 12


class WithoutMean(DisMaxHead):
    """DisMax but for the mean of the distances."""

    def forward(self, features: Tensor) -> Tensor:
        distances: Tensor = self.distances(features)
        return -distances


def gradients(head: torch.nn.Module, features: Tensor, labels: Tensor) -> list[Tensor]:
    leaf = features.clone().requires_grad_()
    loss = METHOD.loss(head(leaf), labels)
    return list(torch.autograd.grad(loss, [leaf, *head.parameters()]))


def pair(dtype: torch.dtype) -> tuple[DisMaxHead, WithoutMean]:
    torch.manual_seed(0)
    head, other = DisMaxHead(NUM_FEATURES, NUM_CLASSES).to(dtype), WithoutMean(NUM_FEATURES, NUM_CLASSES).to(dtype)
    other.load_state_dict(head.state_dict())
    return head, other


def batch(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(40, NUM_FEATURES, generator=generator, dtype=torch.float64).to(dtype)
    return features, torch.randint(NUM_CLASSES, (40,), generator=generator)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_the_mean_changes_no_gradient_by_more_than_rounding(dtype: torch.dtype, tolerance: float) -> None:
    head, other = pair(dtype)
    for with_mean, without in zip(gradients(head, *batch(dtype)), gradients(other, *batch(dtype)), strict=True):
        assert (with_mean - without).norm() <= tolerance * without.norm()


def trained(head: torch.nn.Module, num_steps: int) -> Tensor:
    """Where SGD with momentum takes the prototypes."""
    features, labels = batch(next(head.parameters()).dtype)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for _ in range(num_steps):
        optimizer.zero_grad()
        METHOD.loss(head(features), labels).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in head.parameters()])


def distance(first: Tensor, second: Tensor) -> float:
    return ((first - second).norm() / second.norm()).item()


def test_training_with_and_without_the_mean_ends_apart_by_rounding_alone() -> None:
    exact = distance(*(trained(head, 200) for head in pair(torch.float64)))
    rounded = distance(*(trained(head, 200) for head in pair(torch.float32)))
    assert exact < 1e-9
    assert exact < rounded < 1e-2


def test_isomaxplus_ends_elsewhere_for_its_scale_and_not_for_the_mean() -> None:
    """At the same probabilities (s = √2 in DisMax, 1 in IsoMax+) a gradient step of s moves them differently."""
    head, other = pair(torch.float64)
    isomaxplus = IsoMaxPlusHead(NUM_FEATURES, NUM_CLASSES).double()
    isomaxplus.load_state_dict(head.state_dict())
    with torch.no_grad():
        for one in (head, other):
            one.distances.distance_scale.fill_(math.sqrt(2))
    features, labels = batch(torch.float64)
    torch.testing.assert_close(
        METHOD.training_probabilities(head(features)), METHOD.training_probabilities(isomaxplus(features))
    )
    slope, twin_slope = (
        torch.autograd.grad(METHOD.loss(one(features), labels), one.distances.distance_scale)[0]
        for one in (head, isomaxplus)
    )
    assert twin_slope.item() == pytest.approx(math.sqrt(2) * slope.item(), rel=1e-9)
    dismax, without, isomax = (trained(one, 50) for one in (head, other, isomaxplus))
    assert distance(dismax, without) < 1e-9 < 1e-3 < distance(dismax[:-1], isomax[:-1])
