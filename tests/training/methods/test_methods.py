"""Heads, losses and scores against an independent derivation in NumPy, by hand, and at the extremes."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from portcullis_training import methods
from portcullis_training.errors import ConfigError
from portcullis_training.methods.formulas.scores import (
    BESIDE_SCORES,
    energy,
    max_logit,
    max_probability,
    mmles,
    negative_entropy,
)

ALL = [
    "dismax", "duq", "godin", "godin_dropout", "godin_preprocessing", "isomax", "isomaxplus", "scaled_cosine", "sngp",
    "softmax",
]  # fmt: skip
PLAIN = ["godin", "scaled_cosine", "sngp", "softmax"]  # cross-entropy


def numpy_softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def numpy_entropy(logits: np.ndarray) -> np.ndarray:
    probabilities = numpy_softmax(logits)
    return -(probabilities * np.log(probabilities)).sum(axis=1)


def numpy_distances(features: np.ndarray, prototypes: np.ndarray) -> np.ndarray:
    """‖f̂ − p̂_j‖ written out as the definition has it: normalise, subtract, take the norm."""
    directions = features / np.linalg.norm(features, axis=1, keepdims=True)
    towards = prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)
    return np.linalg.norm(directions[:, None, :] - towards[None, :, :], axis=2)


def trained_head(name: str, num_features: int = 12, num_classes: int = 5) -> tuple[nn.Module, Tensor]:
    """A float64 head whose scale is neither 1 nor positive, and features of very different lengths."""
    torch.manual_seed(7)
    head = methods.find(name).make_head(num_features, num_classes).double()
    for parameter_name, parameter in head.named_parameters():
        if parameter_name.endswith("distance_scale"):
            nn.init.constant_(parameter, -1.7)
    return head, torch.randn(9, num_features, dtype=torch.float64) * torch.logspace(-2, 2, 9).double()[:, None]


def test_methods_are_found_by_the_name_of_their_file() -> None:
    assert methods.names() == ALL
    assert [methods.find(name).name for name in ALL] == ALL


def test_an_unknown_method_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="sngp, softmax, got 'dismaxx'"):
        methods.find("dismaxx")


def test_dismax_logits_equal_the_definition() -> None:
    head, features = trained_head("dismax")
    parameters = dict(head.named_parameters())
    distances = numpy_distances(features.numpy(), parameters["distances.prototypes"].detach().numpy())
    scaled = 1.7 * distances / math.sqrt(2)
    expected = -(scaled + scaled.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(head(features).detach().numpy(), expected, atol=1e-6)


def test_isomaxplus_logits_equal_the_definition() -> None:
    head, features = trained_head("isomaxplus")
    prototypes = dict(head.named_parameters())["distances.prototypes"].detach().numpy()
    np.testing.assert_allclose(
        head(features).detach().numpy(), -1.7 * numpy_distances(features.numpy(), prototypes), atol=1e-6
    )


def test_a_tiny_case_of_dismax_by_hand() -> None:
    """Prototypes (2, 0) and (0, 5), features (3, 0): cosines 1 and 0, distances 0 and 1, mean ½."""
    head = methods.find("dismax").make_head(2, 2).double()
    with torch.no_grad():
        dict(head.named_parameters())["distances.prototypes"].copy_(torch.tensor([[2.0, 0.0], [0.0, 5.0]]))
    logits = head(torch.tensor([[3.0, 0.0]], dtype=torch.float64))
    # The distance 0 is the root of ε = 1e-7 instead, which is 0.0003.
    torch.testing.assert_close(logits, torch.tensor([[-0.5, -1.5]], dtype=torch.float64), atol=5e-4, rtol=0)
    probability = 1 / (1 + math.exp(-10))  # of class 0, with the entropic scale
    loss = methods.find("dismax").loss(torch.tensor([[-0.5, -1.5]]), torch.tensor([0]))
    assert loss.item() == pytest.approx(-math.log(probability), abs=1e-6)
    p = 1 / (1 + math.exp(-1))  # without it
    entropy = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    assert mmles(torch.tensor([[-0.5, -1.5]])).item() == pytest.approx(-0.5 - 1.0 - entropy, abs=1e-6)


def test_mmles_is_minus_smallest_distance_plus_three_means_plus_entropy() -> None:
    head, features = trained_head("dismax")
    distances = dict(head.named_modules())["distances"](features).detach().numpy()
    logits = head(features).detach()
    expected = -(distances.min(axis=1) + 3 * distances.mean(axis=1) + numpy_entropy(logits.numpy()))
    np.testing.assert_allclose(mmles(logits).numpy(), expected, atol=1e-6)


def test_scores_equal_an_independent_derivation() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 6)) * 3
    of_torch = torch.tensor(logits)
    np.testing.assert_allclose(max_probability(of_torch), numpy_softmax(logits).max(axis=1), atol=1e-6)
    np.testing.assert_allclose(max_logit(of_torch), logits.max(axis=1), atol=1e-6)
    np.testing.assert_allclose(negative_entropy(of_torch), -numpy_entropy(logits), atol=1e-6)
    np.testing.assert_allclose(energy(of_torch), np.log(np.exp(logits).sum(axis=1)), atol=1e-6)
    np.testing.assert_allclose(
        mmles(of_torch), logits.max(axis=1) + logits.mean(axis=1) - numpy_entropy(logits), atol=1e-6
    )


SHIPPED = {
    "dismax": "mmles", "duq": "max_logit", "godin": "max_h", "godin_dropout": "max_h", "godin_preprocessing": "max_h",
    "isomax": "negative_entropy", "isomaxplus": "max_logit", "scaled_cosine": "max_cosine", "sngp": "max_probability",
    "softmax": "energy",
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_each_method_ships_its_own_score(name: str) -> None:
    method = methods.find(name)
    assert method.score_name == SHIPPED[name]
    assert (method.score_name in method.scores(torch.randn(8, 4))) != (method.score_name in BESIDE_SCORES)


@pytest.mark.parametrize(
    ("name", "entropic_scale"),
    [("dismax", 10.0), ("isomax", 10.0), ("isomaxplus", 10.0)] + [(name, 1.0) for name in PLAIN],
)
def test_the_loss_equals_an_independent_derivation(name: str, entropic_scale: float) -> None:
    generator = np.random.default_rng(1)
    logits, labels = generator.normal(size=(30, 6)), generator.integers(0, 6, 30)
    expected = -np.log(numpy_softmax(entropic_scale * logits)[np.arange(30), labels]).mean()
    loss = methods.find(name).loss(torch.tensor(logits), torch.tensor(labels))
    assert loss.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_the_gradient_of_the_loss_passes_a_finite_difference_check(name: str) -> None:
    head, _ = trained_head(name, num_features=4, num_classes=3)
    method, labels = methods.find(name), torch.tensor([0, 2, 1])
    features = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    parameters = dict(head.named_parameters())

    def loss_of(features: Tensor, *values: Tensor) -> Tensor:
        torch.manual_seed(0)  # dropout draws the same each time
        logits = torch.func.functional_call(head, dict(zip(parameters, values, strict=True)), features)
        return method.loss(logits, labels)

    assert torch.autograd.gradcheck(loss_of, (features, *parameters.values()))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e4, 1e30])
def test_extreme_logits_give_a_finite_loss_and_gradient(name: str, size: float) -> None:
    logits = (torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 1.0]]) * size).requires_grad_()
    loss = methods.find(name).loss(logits, torch.tensor([1, 0]))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("name", ["dismax", "isomaxplus"])
@pytest.mark.parametrize("size", [1.0, 1e-20, 1e18])
def test_features_on_a_prototype_give_a_finite_gradient(name: str, size: float) -> None:
    method = methods.find(name)
    head = method.make_head(6, 3)
    features = (dict(head.named_parameters())["distances.prototypes"].detach() * size).requires_grad_()
    method.loss(head(features), torch.tensor([0, 1, 1])).backward()
    assert torch.isfinite(features.grad).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in head.parameters())


def test_features_of_zero_give_finite_logits() -> None:
    assert torch.isfinite(methods.find("dismax").make_head(6, 3)(torch.zeros(2, 6))).all()


@pytest.mark.parametrize("score", [mmles, max_probability, max_logit, negative_entropy])
def test_scores_of_logits_divided_by_a_small_temperature_are_finite(score: object) -> None:
    logits = torch.randn(100, 10) / 0.001
    assert torch.isfinite(score(logits)).all()  # type: ignore[operator]


def test_distances_keep_single_precision_under_autocast() -> None:
    head = methods.find("dismax").make_head(16, 4)
    features = torch.randn(5, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = head(features)
    torch.testing.assert_close(logits, head(features))
