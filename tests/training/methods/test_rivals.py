"""The rivals' heads, losses and own steps against independent derivations in NumPy, by hand, and at the extremes."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from portcullis_training import methods
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.fitting.ensemble import together
from portcullis_training.fitting.objective import Material, material_of, objective
from portcullis_training.methods import LastPass
from portcullis_training.methods.duq import FIRST_COUNT, LENGTH_SCALE, MOMENTUM, PENALTY, DuqHead
from portcullis_training.methods.formulas import spectral
from portcullis_training.methods.formulas.answers import answer_of
from portcullis_training.methods.godin_preprocessing import CANDIDATES
from portcullis_training.methods.sngp import SngpHead
from portcullis_training.mixing.cutmix import cut_mix

NUM_FEATURES, NUM_CLASSES = 6, 3
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(10, NUM_FEATURES))
RIVALS = ["duq", "godin", "godin_dropout", "godin_preprocessing", "isomax", "scaled_cosine", "sngp"]


def head_of(name: str) -> nn.Module:
    torch.manual_seed(1)
    return methods.find(name).make_head(NUM_FEATURES, NUM_CLASSES).double()


def state(head: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in head.state_dict().items()}


def cosines(features: np.ndarray, weight: np.ndarray) -> np.ndarray:
    products = features @ weight.T
    return products / np.linalg.norm(features, axis=1)[:, None] / np.linalg.norm(weight, axis=1)[None, :]


def standardised_scalar(prefix: str, values: dict[str, np.ndarray]) -> np.ndarray:
    """BN(w·f + b) over the batch, its statistics written out."""
    raw = FEATURES @ values[f"{prefix}.linear.weight"].T + values[f"{prefix}.linear.bias"]
    return (raw - raw.mean()) / np.sqrt(raw.var() + 1e-5)


class Tiny(nn.Module):
    """A genuine network of a few weights, as much of a classifier as a method may know."""

    def __init__(self, head: nn.Module, side: int = 2) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, NUM_FEATURES), nn.Tanh()).double()
        self.head = head

    def features(self, images: Tensor) -> Tensor:
        features: Tensor = self.body(images)
        return features

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits


def images_and_labels(num_images: int, side: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    images = torch.rand(num_images, 3, side, side, dtype=torch.float64, generator=generator)
    return images, torch.randint(NUM_CLASSES, (num_images,), generator=generator)


def test_isomax_logits_are_minus_distances_to_prototypes_that_start_at_the_origin() -> None:
    head = methods.find("isomax").make_head(2, 2).double()
    assert head(torch.tensor([[3.0, 4.0]])).tolist() == [[-5.0, -5.0]]
    with torch.no_grad():
        head.prototypes.copy_(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))  # type: ignore[union-attr, operator]
    np.testing.assert_allclose(head(torch.tensor([[3.0, 4.0]])).detach(), [[-4, -math.sqrt(18)]])


def test_scaled_cosine_equals_the_definition() -> None:
    head = head_of("scaled_cosine").train()
    values = state(head)
    expected = cosines(FEATURES, values["cosines.weight"])
    answer = answer_of(head, torch.from_numpy(FEATURES))
    np.testing.assert_allclose(answer.beside.detach(), expected, atol=1e-9)
    scale = np.exp(standardised_scalar("exponent", values))
    np.testing.assert_allclose(answer.logits.detach(), scale * expected, atol=1e-9)


def test_godin_equals_the_definition() -> None:
    head = head_of("godin").train()
    values = state(head)
    h = cosines(FEATURES, values["h.weight"])
    answer = answer_of(head, torch.from_numpy(FEATURES))
    np.testing.assert_allclose(answer.beside.detach(), h, atol=1e-9)
    np.testing.assert_allclose(answer.logits.detach(), h * (1 + np.exp(-standardised_scalar("g", values))), atol=1e-9)


@pytest.mark.parametrize("name", ["godin", "scaled_cosine"])
def test_a_last_batch_of_one_image_is_standardised_by_the_batches_before(name: str) -> None:
    head, features = head_of(name).train(), torch.from_numpy(FEATURES)
    head(features)
    alone = head(features[:1])
    torch.testing.assert_close(alone, head.eval()(features[:1]))
    methods.find(name).loss(alone, torch.tensor([1])).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in head.parameters())  # type: ignore[arg-type]


def test_dropout_is_gone_where_godin_is_evaluated() -> None:
    head = head_of("godin_dropout").train()
    features = torch.from_numpy(FEATURES)
    torch.manual_seed(0)
    assert not torch.equal(head(features), head(features))
    head.eval()
    assert torch.equal(head(features), head(features))


def duq_log_kernel(values: dict[str, np.ndarray], features: np.ndarray) -> np.ndarray:
    rows = []
    for feature in features:
        row = []
        for weight, total, count in zip(values["weight"], values["sums"], values["counts"], strict=True):
            row.append(-np.mean((weight @ feature - total / count) ** 2) / (2 * LENGTH_SCALE**2))
        rows.append(row)
    return np.array(rows)


def test_duq_logits_are_the_logarithms_of_its_kernel() -> None:
    head = head_of("duq")
    np.testing.assert_allclose(
        head(torch.from_numpy(FEATURES)).detach(), duq_log_kernel(state(head), FEATURES), rtol=1e-9
    )


def test_a_tiny_case_of_duq_by_hand() -> None:
    """K = ½ and ¼, the first right: −(log ½ + log ¾) / 2."""
    logits = torch.tensor([[math.log(0.5), math.log(0.25)]])
    loss = methods.find("duq").loss(logits, torch.tensor([0]))
    assert loss.item() == pytest.approx(-(math.log(0.5) + math.log(0.75)) / 2, abs=1e-6)


def test_duq_loss_is_binary_cross_entropy_of_the_kernel() -> None:
    logits, labels = -torch.rand(9, 4, dtype=torch.float64) - 0.01, torch.arange(9) % 4
    targets = nn.functional.one_hot(labels, 4).double()
    expected = nn.functional.binary_cross_entropy(logits.exp(), targets)
    torch.testing.assert_close(methods.find("duq").loss(logits, labels), expected)


def small_duq() -> Tiny:
    """With centroids so near that the kernel is not all but 0."""
    head = head_of("duq")
    with torch.no_grad():
        head.weight.mul_(0.3)  # type: ignore[union-attr, operator]
    return Tiny(head)


def test_duq_penalty_equals_finite_differences_over_normalised_images() -> None:
    network = small_duq()
    images, _ = images_and_labels(4)
    deviations = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).view(1, 3, 1, 1)
    leaf = images.clone().requires_grad_()
    got = methods.find("duq").penalty(network(leaf), leaf, deviations)
    lengths = []
    for number in range(4):
        gradient = np.zeros(images[0].shape)
        for place in np.ndindex(*gradient.shape):
            step = torch.zeros_like(images[0])
            step[place] = 1e-6
            up, down = (network((images[number] + sign * step)[None]).exp().sum().item() for sign in (1, -1))
            gradient[place] = (up - down) / 2e-6 * deviations[0, place[0], 0, 0].item()
        lengths.append(np.linalg.norm(gradient))
    assert got.item() == pytest.approx(PENALTY * np.mean((np.array(lengths) - 1) ** 2), rel=1e-5)


def test_the_whole_objective_of_duq_passes_a_finite_difference_check() -> None:
    """Through the gradient of a gradient."""
    network, method = small_duq(), methods.find("duq")
    images, labels = images_and_labels(3)
    parameters = dict(network.named_parameters())

    def loss_of(*values: Tensor) -> Tensor:
        named = dict(zip(parameters, values, strict=True))
        material = Material(images, labels, labels.new_zeros(0, NUM_CLASSES))
        return objective(method, lambda batch: torch.func.functional_call(network, named, batch), material).loss

    assert torch.autograd.gradcheck(loss_of, tuple(parameters.values()))


def test_duq_centroids_follow_their_classes_and_processes_add_up() -> None:
    alone, first, second = small_duq().eval(), small_duq().eval(), small_duq().eval()
    for other in (first, second):
        other.load_state_dict(alone.state_dict())
    images, labels = images_and_labels(8)
    before, features = state(alone.head), alone.features(images).detach().numpy()
    methods.find("duq").after_step(alone, images, labels, lambda values: values)
    counts, sums = before["counts"] * MOMENTUM, before["sums"] * MOMENTUM
    for feature, label in zip(features, labels.tolist(), strict=True):
        counts[label] += 1 - MOMENTUM
        sums[label] += (1 - MOMENTUM) * (before["weight"][label] @ feature)
    np.testing.assert_allclose(state(alone.head)["counts"], counts, rtol=1e-9)
    np.testing.assert_allclose(state(alone.head)["sums"], sums, rtol=1e-9)

    shares: list[Tensor] = []
    methods.find("duq").after_step(second, images[4:], labels[4:], lambda values: shares.append(values) or values)
    methods.find("duq").after_step(first, images[:4], labels[:4], lambda values: values + shares[0])
    np.testing.assert_allclose(state(first.head)["sums"], sums, rtol=1e-9)


def numpy_random_features(values: dict[str, np.ndarray], features: np.ndarray) -> np.ndarray:
    waves = np.cos(features @ values["projection"].T + values["phase"])
    return np.sqrt(2 / len(values["phase"])) * waves


def test_sngp_is_a_gaussian_process_with_the_precision_of_its_training_images() -> None:
    torch.manual_seed(0)
    network = Tiny(SngpHead(NUM_FEATURES, NUM_CLASSES, size=16).double()).eval()
    images, labels = images_and_labels(20)

    def batches() -> list[tuple[Tensor, Tensor]]:
        return [(images[:12], labels[:12]), (images[12:], labels[12:])]

    methods.find("sngp").finish(LastPass(network, batches, list, lambda values: values))
    values, features = state(network.head), network.features(images).detach().numpy()
    phi = numpy_random_features(values, features)
    variance = np.einsum("bi,ij,bj->b", phi, np.linalg.inv(np.eye(16) + phi.T @ phi), phi)
    answer = answer_of(network.head, network.features(images))
    np.testing.assert_allclose(answer.beside.detach()[:, 0], variance, rtol=1e-9)
    expected = phi @ values["beta"].T / np.sqrt(1 + 20 * variance)[:, None]
    np.testing.assert_allclose(answer.logits.detach(), expected, rtol=1e-9)
    network.train()
    np.testing.assert_allclose(network(images).detach(), phi @ values["beta"].T, rtol=1e-9)


def test_the_precision_of_sngp_is_summed_over_processes() -> None:
    images, labels = images_and_labels(6)
    torch.manual_seed(0)
    alone = Tiny(SngpHead(NUM_FEATURES, NUM_CLASSES, size=8).double()).eval()
    method, shared = methods.find("sngp"), Tiny(SngpHead(NUM_FEATURES, NUM_CLASSES, size=8).double()).eval()
    shared.load_state_dict(alone.state_dict())
    method.finish(LastPass(alone, lambda: [(images, labels)], list, lambda values: values))
    rest = shared.head.random_features(shared.features(images[4:])).detach()  # type: ignore[operator]
    method.finish(LastPass(shared, lambda: [(images[:4], labels)], list, lambda values: values + rest.T @ rest))
    np.testing.assert_allclose(state(shared.head)["covariance"], state(alone.head)["covariance"], rtol=1e-9)


@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (1, 2)])
def test_a_bounded_convolution_has_the_spectral_norm_of_its_operator(stride: int, groups: int) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 2, 3, padding=1, stride=stride, groups=groups, bias=False).double()
    size = 2 * spectral.SIDE**2
    basis = torch.eye(size, dtype=torch.float64).view(size, 2, spectral.SIDE, spectral.SIDE)
    norm = np.linalg.norm(layer(basis).detach().flatten(1).numpy(), ord=2)  # the operator as a matrix
    plain = layer.weight.detach().clone()
    network = nn.Sequential(layer)
    spectral.bound_layers(network, bound=norm / 4)
    network.eval()
    for _ in range(10):
        spectral.settle(network)
    torch.testing.assert_close(layer.weight.detach(), plain / 4, rtol=1e-3, atol=0)


def test_a_layer_under_its_bound_is_left_alone_and_training_turns_the_estimate() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(5, 4)
    norm = float(np.linalg.norm(layer.weight.detach().numpy(), ord=2))
    plain = layer.weight.detach().clone()
    network = nn.Sequential(layer)
    spectral.bound_layers(network, bound=2 * norm)
    torch.testing.assert_close(layer.weight.detach(), plain)
    bounded = nn.Sequential(nn.Linear(5, 4))
    spectral.bound_layers(bounded, bound=0.1)
    for _ in range(200):
        bounded(torch.randn(3, 5))
    weight = bounded[0].weight.detach().numpy()
    assert np.linalg.norm(weight, ord=2) == pytest.approx(0.1, rel=1e-3)
    bounded.eval()
    direction = bounded[0].parametrizations.weight[0].direction.clone()  # type: ignore[union-attr, index]
    bounded(torch.randn(3, 5))
    assert torch.equal(direction, bounded[0].parametrizations.weight[0].direction)  # type: ignore[union-attr, index]


def test_sngp_bounds_every_layer_of_the_backbone_that_learns() -> None:
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))
    backbone[0].weight.requires_grad_(False)
    methods.find("sngp").change_backbone(backbone)
    assert [parametrize.is_parametrized(layer) for layer in backbone] == [False, True, False]


def test_duq_and_godin_have_the_constants_of_their_authors() -> None:
    assert (LENGTH_SCALE, MOMENTUM, PENALTY, FIRST_COUNT) == (0.1, 0.999, 0.5, 13)
    assert CANDIDATES == (0, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)


def test_sngp_has_the_constants_of_its_authors() -> None:
    """κ of CIFAR-10 and of CIFAR-100, and the bound of every layer."""
    heads = [SngpHead(NUM_FEATURES, num_classes, size=4) for num_classes in (2, 10, 99, 100, 1000)]
    assert [head.mean_field for head in heads] == [20, 20, 20, 7.5, 7.5]
    backbone = nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        backbone[0].weight.copy_(torch.diag(torch.tensor([60.0, 12.0])))
    methods.find("sngp").change_backbone(backbone)
    spectral.settle(backbone)
    torch.testing.assert_close(backbone[0].weight.detach(), torch.diag(torch.tensor([6.0, 1.2])))


def test_an_ensemble_answers_with_the_mean_probability() -> None:
    from portcullis_training import backbones

    torch.manual_seed(0)
    members = []
    for _ in range(3):
        backbone = backbones.build("small:4-4-4")
        head = methods.find("softmax").make_head(4, NUM_CLASSES)
        members.append(Classifier(backbone, head, (0.5, 0.4, 0.3), (0.2, 0.3, 0.2)).eval())
    whole = together(members).eval()
    images = torch.rand(5, 3, 8, 8)
    with torch.inference_mode():
        expected = np.mean([member(images).softmax(dim=1).numpy() for member in members], axis=0)
        reading = whole.read(images)
        np.testing.assert_allclose(reading.logits.exp().numpy(), expected, atol=1e-6)
        np.testing.assert_allclose(reading.logits.softmax(dim=1).numpy(), expected, atol=1e-6)  # at T = 1
        features = np.concatenate([member.features(images).numpy() for member in members], axis=1)
    np.testing.assert_allclose(reading.features.numpy(), features, atol=1e-6)


def test_preprocessing_pushes_every_pixel_towards_a_higher_score() -> None:
    network, method = Tiny(head_of("godin_preprocessing")).eval(), methods.find("godin_preprocessing")
    network.head.epsilon.fill_(0.01)  # type: ignore[union-attr, operator]
    images, _ = images_and_labels(2)
    pushed = method.perturbed(network, images)  # type: ignore[attr-defined]

    def score(image: Tensor) -> float:
        return answer_of(network.head, network.features(image[None])).beside.max().item()

    for number in range(2):
        for place in np.ndindex(3, 2, 2):
            step = torch.zeros(3, 2, 2, dtype=torch.float64)
            step[place] = 1e-6
            slope = score(images[number] + step) - score(images[number] - step)
            assert pushed[number][place].item() == pytest.approx(images[number][place].item() + 0.01 * np.sign(slope))


def test_preprocessing_takes_the_epsilon_of_the_highest_mean_score() -> None:
    network, method = Tiny(head_of("godin_preprocessing")).eval(), methods.find("godin_preprocessing")
    images, labels = images_and_labels(6)
    method.finish(LastPass(network, list, lambda: [(images[:4], labels[:4]), (images[4:], labels[4:])], lambda v: v))
    means = []
    for epsilon in CANDIDATES:
        network_at = Tiny(head_of("godin_preprocessing")).eval()
        network_at.load_state_dict(network.state_dict())
        network_at.head.epsilon.fill_(epsilon)  # type: ignore[union-attr, operator]
        pushed = method.perturbed(network_at, images)  # type: ignore[attr-defined]
        means.append(answer_of(network_at.head, network_at.features(pushed)).beside.amax(dim=1).mean().item())
    chosen = network.head.epsilon.item()  # type: ignore[union-attr, operator]
    assert chosen == pytest.approx(CANDIDATES[int(np.argmax(means))])
    assert chosen > 0


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("size", [0.0, 1e-20, 1.0, 1e15])
def test_extreme_features_give_finite_logits_loss_and_gradients(name: str, size: float) -> None:
    torch.manual_seed(0)
    method = methods.find(name)
    head = method.make_head(NUM_FEATURES, NUM_CLASSES).train()
    features = (torch.randn(4, NUM_FEATURES) * size).requires_grad_()
    loss = method.loss(head(features), torch.tensor([0, 1, 2, 2]))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(features.grad).all()  # type: ignore[arg-type]
    assert all(torch.isfinite(parameter.grad).all() for parameter in head.parameters() if parameter.grad is not None)
    answer = answer_of(head.eval(), features.detach())
    assert all(torch.isfinite(part).all() for part in answer)


@pytest.mark.parametrize("name", ["isomax", "duq"])
def test_features_where_the_class_is_give_a_finite_gradient(name: str) -> None:
    head = head_of(name)
    if isinstance(head, DuqHead):
        head.sums.zero_()
    features = torch.zeros(3, NUM_FEATURES, dtype=torch.float64, requires_grad=True)  # on every centroid at once
    methods.find(name).loss(head(features), torch.tensor([0, 1, 1])).backward()
    assert torch.isfinite(features.grad).all()  # type: ignore[arg-type]


def test_cut_mix_puts_one_box_of_the_partner_into_each_image_and_counts_what_is_left() -> None:
    images = torch.arange(6.0).view(6, 1, 1, 1).expand(6, 3, 9, 7)  # image i is filled with i
    labels = torch.arange(6)
    num_mixed = 0
    for seed in range(40):
        mixed = cut_mix(images, labels, torch.Generator().manual_seed(seed))
        own = mixed.images == labels.view(6, 1, 1, 1)
        if mixed.own_share == 1:
            assert torch.equal(mixed.images, images)
            continue
        num_mixed += 1
        assert sorted(mixed.partner_labels.tolist()) == list(range(6))
        for number, partner in enumerate(mixed.partner_labels.tolist()):
            assert set(mixed.images[number].unique().tolist()) <= {number, partner}
            if partner != number:
                assert own[number].float().mean().item() == pytest.approx(mixed.own_share)
                box = (~own[number, 0]).nonzero()
                sides = box.max(dim=0).values - box.min(dim=0).values + 1
                assert len(box) == sides.prod(), "one box"
    assert 8 < num_mixed < 32, "half of the batches"


def test_the_loss_of_mixed_images_weighs_both_labels_by_their_area() -> None:
    network, method = Tiny(head_of("isomax"), side=8), methods.find("isomax")
    images, labels = images_and_labels(8, side=8)
    seed = next(s for s in range(99) if cut_mix(images, labels, torch.Generator().manual_seed(s)).own_share < 1)
    mixed = cut_mix(images, labels, torch.Generator().manual_seed(seed))
    material = material_of(images, labels, NUM_CLASSES, "cutmix", torch.Generator().manual_seed(seed))
    logits = network(mixed.images)
    expected = mixed.own_share * method.loss(logits, labels)
    expected = expected + (1 - mixed.own_share) * method.loss(logits, mixed.partner_labels)
    torch.testing.assert_close(objective(method, network, material).loss, expected)
