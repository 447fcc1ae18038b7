"""What each method asks of the optimiser: parameters that weight decay spares, and a learning rate of its own."""

import pytest
import torch

from portcullis_training import methods
from portcullis_training.config import RunConfig
from portcullis_training.data.statistics import ChannelStatistics
from portcullis_training.fitting.classifier import Classifier, build_classifier
from portcullis_training.fitting.preparation import make_optimizer

SPARED = {
    "scaled_cosine": {"head.cosines.weight"},
    "godin": {"head.h.weight"},
    "godin_dropout": {"head.h.weight"},
    "godin_preprocessing": {"head.h.weight"},
}
RATES = {"duq": 0.5}  # 0.05 in the recipes of the paper


def prepared(method: str) -> tuple[Classifier, torch.optim.Optimizer]:
    config = RunConfig(method=method, backbone="small:4-4-4", weight_decay=0.1, learning_rate=0.1)
    classifier = build_classifier(config, 3, ChannelStatistics((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)))
    return classifier, make_optimizer(classifier, config)


@pytest.mark.parametrize("method", methods.names())
def test_weight_decay_spares_what_a_methods_authors_spare_and_nothing_else(method: str) -> None:
    """Where no loss pulls, a step of the optimiser is the decay alone."""
    torch.manual_seed(0)
    classifier, optimizer = prepared(method)
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.copy_(torch.rand_like(parameter) + 0.5)  # none is 0, which no decay moves
            parameter.grad = torch.zeros_like(parameter)
    before = {name: parameter.detach().clone() for name, parameter in classifier.named_parameters()}
    optimizer.step()
    unmoved = {name for name, parameter in classifier.named_parameters() if torch.equal(parameter, before[name])}
    assert unmoved == SPARED.get(method, set())


@pytest.mark.parametrize("method", methods.names())
def test_every_parameter_learns_at_the_rate_of_its_method(method: str) -> None:
    classifier, optimizer = prepared(method)
    filled = [group for group in optimizer.param_groups if group["params"]]
    assert {group["rate"] for group in filled} == {RATES.get(method, 1.0)}
    learning = [parameter for parameter in classifier.parameters() if parameter.requires_grad]
    assert sum(len(group["params"]) for group in filled) == len(learning)
