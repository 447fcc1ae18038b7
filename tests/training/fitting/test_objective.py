"""The fractional regulariser and the whole objective against an independent derivation."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from portcullis_training import methods
from portcullis_training.fitting.distributed import Process
from portcullis_training.fitting.objective import Objective, compound_material, in_parts, material_of, objective
from portcullis_training.mixing.fractional import compound_images, compound_targets

ENTROPIC_SCALE = {"dismax": 10.0, "isomaxplus": 10.0, "softmax": 1.0}


class CountingClassifier(nn.Module):
    """A genuine small classifier that also keeps what it was called with."""

    def __init__(self, name: str, num_classes: int = 4) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(75, 8), nn.Tanh(), methods.find(name).make_head(8, num_classes)
        ).double()
        self.calls: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.calls.append(images)
        logits: Tensor = self.layers(images)
        return logits


def objective_of(name: str, classifier: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Objective:
    """With the regulariser, in one process and one part."""
    return objective(methods.find(name), classifier, compound_material(images, labels, 4))


def batch(num_images: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(num_images, 3, 5, 5, dtype=torch.float64, generator=generator)
    return images, torch.randint(0, 4, (num_images,), generator=generator)


def numpy_compound(images: np.ndarray) -> np.ndarray:
    """Pixel by pixel: which source a pixel comes from follows from the quadrant it lies in."""
    num_images, _, height, width = images.shape
    compound = np.empty_like(images)
    for index in range(num_images):
        for row in range(height):
            for column in range(width):
                is_bottom, is_right = row >= height // 2, column >= width // 2
                source = index - (is_bottom + 2 * is_right)
                compound[index, :, row, column] = images[source % num_images, :, row, column]
    return compound


def numpy_targets(labels: np.ndarray, num_classes: int) -> np.ndarray:
    targets = np.zeros((len(labels), num_classes))
    for index in range(len(labels)):
        for back in range(4):
            targets[index, labels[(index - back) % len(labels)]] += 0.25
    return targets


@pytest.mark.parametrize("num_images", [1, 2, 3, 4, 7])
def test_compound_images_equal_an_independent_derivation(num_images: int) -> None:
    images, _ = batch(num_images)
    np.testing.assert_array_equal(compound_images(images).numpy(), numpy_compound(images.numpy()))


@pytest.mark.parametrize("num_images", [1, 2, 3, 4, 7])
def test_compound_targets_equal_an_independent_derivation(num_images: int) -> None:
    _, labels = batch(num_images)
    np.testing.assert_allclose(compound_targets(labels, 4).numpy(), numpy_targets(labels.numpy(), 4), atol=1e-6)


def test_a_tiny_compound_by_hand() -> None:
    """Four 2×2 images filled with 0, 1, 2, 3: image 3 is 3 top-left, 2 bottom-left, 1 top-right, 0 bottom-right."""
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 3, 2, 2)
    assert compound_images(images)[3, 0].tolist() == [[3, 1], [2, 0]]
    assert compound_targets(torch.tensor([0, 1, 1, 2]), 3)[3].tolist() == [0.25, 0.5, 0.25]


@pytest.mark.parametrize("name", list(ENTROPIC_SCALE))
@pytest.mark.parametrize("num_images", [8, 9])
def test_the_regularised_loss_equals_an_independent_derivation(name: str, num_images: int) -> None:
    images, labels = batch(num_images)
    classifier = CountingClassifier(name)
    got = objective_of(name, classifier, images, labels)

    num_whole = num_images - num_images // 2
    mixed = np.concatenate([images[:num_whole].numpy(), numpy_compound(images[num_whole:].numpy())])
    logits = ENTROPIC_SCALE[name] * classifier.layers(torch.tensor(mixed)).detach().numpy()
    log_probabilities = np.log(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
    cross_entropy = -log_probabilities[np.arange(num_whole), labels[:num_whole]].mean()
    targets = numpy_targets(labels[num_whole:].numpy(), 4)
    log_targets = np.log(np.where(targets > 0, targets, 1))
    divergence = (targets * (log_targets - log_probabilities[num_whole:])).sum(axis=1).mean()
    assert got.loss.item() == pytest.approx((cross_entropy + divergence) / 2, abs=1e-6)
    assert got.num_counted == num_whole
    assert got.num_correct.item() == (logits[:num_whole].argmax(axis=1) == labels[:num_whole].numpy()).sum()


@pytest.mark.parametrize("name", list(ENTROPIC_SCALE))
def test_without_the_regulariser_the_objective_is_the_loss_of_all_images(name: str) -> None:
    images, labels = batch(6)
    classifier = CountingClassifier(name)
    got = objective(methods.find(name), classifier, material_of(images, labels, 4, "none", torch.Generator()))
    torch.testing.assert_close(got.loss, methods.find(name).loss(classifier.layers(images), labels))
    assert got.num_counted == 6


def test_the_classifier_runs_once_a_batch_and_the_batch_is_left_alone() -> None:
    images, labels = batch(8)
    before = images.clone()
    classifier = CountingClassifier("dismax")
    objective_of("dismax", classifier, images, labels)
    assert len(classifier.calls) == 1
    torch.testing.assert_close(images, before)


def test_a_last_batch_of_one_image_still_has_a_finite_loss() -> None:
    images, labels = batch(1)
    got = objective_of("dismax", CountingClassifier("dismax"), images, labels)
    assert torch.isfinite(got.loss)
    assert got.num_counted == 1


@pytest.mark.parametrize("name", list(ENTROPIC_SCALE))
def test_the_gradient_of_the_regularised_loss_passes_a_finite_difference_check(name: str) -> None:
    images, labels = batch(4)
    classifier = CountingClassifier(name)
    parameters = dict(classifier.named_parameters())

    def loss_of(*values: Tensor) -> Tensor:
        weights = dict(zip(parameters, values, strict=True))
        return objective_of(
            name, lambda images: torch.func.functional_call(classifier, weights, images), images, labels
        ).loss

    assert torch.autograd.gradcheck(loss_of, tuple(parameters.values()), fast_mode=True)


def test_certain_logits_give_a_finite_regularised_loss_and_gradient() -> None:
    logits = (torch.eye(4) * 1e6).requires_grad_()
    got = objective_of("dismax", lambda images: logits, torch.rand(4, 3, 4, 4), torch.tensor([1, 2, 3, 0]))
    got.loss.backward()
    assert torch.isfinite(got.loss)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("is_fractional", [False, True])
@pytest.mark.parametrize("num_parts", [2, 3, 5, 100])
def test_the_losses_and_gradients_of_the_parts_add_up_to_those_of_the_batch(
    num_parts: int, is_fractional: bool
) -> None:
    images, labels = batch(11)
    material = material_of(images, labels, 4, "fractional" if is_fractional else "none", torch.Generator())
    whole, in_pieces = CountingClassifier("dismax"), CountingClassifier("dismax")
    expected = objective(methods.find("dismax"), whole, material)
    expected.loss.backward()
    results = [objective(methods.find("dismax"), in_pieces, part) for part in in_parts(material, num_parts)]
    for result in results:
        result.loss.backward()
    assert 1 < len(results) <= num_parts
    torch.testing.assert_close(sum(result.loss for result in results), expected.loss)
    assert sum(result.num_counted for result in results) == expected.num_counted
    for got, wanted in zip(in_pieces.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad)


@pytest.mark.parametrize(("batch_size", "num_processes"), [(8, 2), (4, 2), (24, 3), (32, 4)])
def test_several_processes_compound_what_one_would(batch_size: int, num_processes: int) -> None:
    images, labels = batch(batch_size)
    alone = compound_material(images, labels, 4)
    shares = [
        Process(rank, num_processes, torch.device("cpu")).share(batch_size, is_fractional=True)
        for rank in range(num_processes)
    ]
    together = [
        compound_material(images[share.positions], labels[share.positions], 4, share.num_context) for share in shares
    ]
    num_whole = batch_size // 2
    assert torch.equal(torch.cat([part.labels for part in together]), alone.labels)
    assert torch.equal(torch.cat([part.targets for part in together]), alone.targets)
    assert torch.equal(torch.cat([part.images[: len(part.labels)] for part in together]), alone.images[:num_whole])
    assert torch.equal(torch.cat([part.images[len(part.labels) :] for part in together]), alone.images[num_whole:])
    losses = [objective(methods.find("dismax"), CountingClassifier("dismax"), part).loss for part in together]
    expected = objective(methods.find("dismax"), CountingClassifier("dismax"), alone).loss
    torch.testing.assert_close(torch.stack(losses).mean(), expected)  # what averaging the gradients amounts to
