"""The cost of a method beside SoftMax."""

import pytest
import torch

from portcullis_training import backbones, methods
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.measuring.cost import NUM_ROUNDS, interleaved_ratio, rounds_within, softmax_twin


def work(num_rounds: int) -> float:
    return sum(number * 0.5 for number in range(num_rounds))


def test_twice_the_work_costs_about_twice() -> None:
    ratio = interleaved_ratio(lambda: work(40_000), lambda: work(20_000))
    assert ratio == pytest.approx(2, rel=0.35)


@pytest.mark.parametrize("call_seconds", [1e-5, 1e-3, 0.1, 0.5, 1.2])
def test_the_rounds_of_a_large_network_fit_into_the_time_there_is(call_seconds: float) -> None:
    num_calls = max(1, round(0.01 / call_seconds))
    rounds = rounds_within(10.0, call_seconds, num_calls)
    assert rounds is not None
    spent = 2 * call_seconds * (rounds.num_warm_ups + rounds.num_measured * num_calls)
    assert spent <= 10 and rounds.num_measured >= 3
    assert rounds.num_measured == NUM_ROUNDS or spent > 5  # and none of them is given away


def test_a_network_that_is_too_large_for_a_few_rounds_is_not_timed() -> None:
    calls = []
    assert interleaved_ratio(lambda: calls.append(1), lambda: calls.append(work(200_000)), max_seconds=1e-6) is None
    assert len(calls) == 2


@pytest.mark.parametrize("name", ["dismax", "isomaxplus", "softmax"])
def test_the_twin_has_the_same_backbone_and_a_linear_head(name: str) -> None:
    backbone = backbones.build("small")
    classifier = Classifier(backbone, methods.find(name).make_head(backbone.num_features, 7), (0.5,) * 3, (0.2,) * 3)
    twin = softmax_twin(classifier.eval()).eval()
    images = torch.rand(2, 3, 12, 12)
    torch.testing.assert_close(twin.features(images), classifier.features(images))
    assert isinstance(twin.head, torch.nn.Linear)
    assert twin(images).shape == (2, 7)
