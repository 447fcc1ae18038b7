"""The cost of a method beside SoftMax."""

import pytest
import torch

from training import backbones, methods
from training.classifier import Classifier
from training.cost import interleaved_ratio, softmax_twin


def work(num_rounds: int) -> float:
    return sum(number * 0.5 for number in range(num_rounds))


def test_twice_the_work_costs_about_twice() -> None:
    ratio = interleaved_ratio(lambda: work(40_000), lambda: work(20_000), num_rounds=9)
    assert ratio == pytest.approx(2, rel=0.35)


@pytest.mark.parametrize("name", ["dismax", "isomaxplus", "softmax"])
def test_the_twin_has_the_same_backbone_and_a_linear_head(name: str) -> None:
    backbone = backbones.build("small")
    classifier = Classifier(backbone, methods.find(name).make_head(backbone.num_features, 7), (0.5,) * 3, (0.2,) * 3)
    twin = softmax_twin(classifier.eval()).eval()
    images = torch.rand(2, 3, 12, 12)
    torch.testing.assert_close(twin.features(images), classifier.features(images))
    assert isinstance(twin.head, torch.nn.Linear)
    assert twin(images).shape == (2, 7)
