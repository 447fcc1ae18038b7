"""The parts of a score, against independent derivations, and the sum that they make."""

import numpy as np
import pytest
import torch
from sklearn.covariance import ShrunkCovariance
from sklearn.neighbors import NearestNeighbors

from portcullis.bundle.manifest import ScoreInfo
from portcullis_training.fitting.classifier import Reading
from portcullis_training.graph import score_parts
from portcullis_training.graph.score import Score, own_score
from portcullis_training.graph.score_parts import Constants, OwnScore
from portcullis_training.measuring import part_constants
from portcullis_training.measuring.metrics import Array
from portcullis_training.methods import dismax

NUM_CLASSES, NUM_FEATURES, NUM_MIDDLE = 4, 24, 10
RANDOM = np.random.default_rng(0)
LABELS = np.arange(600) % NUM_CLASSES
FEATURES = (5 * np.eye(NUM_CLASSES, NUM_FEATURES)[LABELS] + RANDOM.normal(size=(600, NUM_FEATURES))).astype(np.float32)
MIDDLE = (RANDOM.normal(size=(600, NUM_MIDDLE)) @ RANDOM.normal(size=(NUM_MIDDLE, NUM_MIDDLE)) + 3).astype(np.float32)
NEW = Reading(
    torch.from_numpy(RANDOM.normal(size=(50, NUM_CLASSES)).astype(np.float32)),
    torch.from_numpy(3 * RANDOM.normal(size=(50, NUM_FEATURES)).astype(np.float32)),
    torch.from_numpy(3 * RANDOM.normal(size=(50, NUM_MIDDLE)).astype(np.float32)),
    torch.zeros(50, 0),
)


def unit(vectors: Array) -> Array:
    directions: Array = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return directions


@pytest.fixture(params=["narrow", "wide"])
def either_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to compute a Gaussian, which its width chooses between."""
    monkeypatch.setattr(score_parts, "WIDE", {"narrow": 10**6, "wide": 1}[request.param])


def part_of_new(name: str, constants: Constants) -> Array:
    column: Array = score_parts.make_part(name, constants)(NEW).numpy()
    assert column.shape == (50, 1)
    return column[:, 0]


def test_the_gap_of_dismax_logits_is_that_of_its_distances() -> None:
    head = dismax.DisMaxHead(NUM_FEATURES, NUM_CLASSES)
    with torch.no_grad():
        distances = head.distances(NEW.features).numpy()
        reading = NEW._replace(logits=head(NEW.features))
    expected = np.linalg.norm(NEW.features, axis=1) * (distances.mean(axis=1) - distances.min(axis=1))
    np.testing.assert_allclose(score_parts.make_part("norm_gap", {})(reading)[:, 0], expected, rtol=1e-4)


@pytest.mark.usefixtures("either_form")
def test_the_middle_is_minus_scikit_learns_mahalanobis_distance() -> None:
    covariance = ShrunkCovariance(shrinkage=part_constants.SHRINKAGE).fit(MIDDLE.astype(np.float64))
    found = part_of_new("middle", part_constants.of_all(MIDDLE))
    np.testing.assert_allclose(found, -covariance.mahalanobis(NEW.middle.numpy()), rtol=1e-4)


@pytest.mark.usefixtures("either_form")
def test_the_features_are_minus_the_least_mahalanobis_distance_to_a_class() -> None:
    units = unit(FEATURES).astype(np.float64)
    means = np.stack([units[label == LABELS].mean(axis=0) for label in range(NUM_CLASSES)])
    covariance = ShrunkCovariance(shrinkage=part_constants.SHRINKAGE, assume_centered=True).fit(units - means[LABELS])
    directions = unit(NEW.features.numpy())
    distances = np.stack([covariance.mahalanobis(directions - mean) for mean in means])
    found = part_of_new("features", part_constants.of_classes(FEATURES, LABELS))
    np.testing.assert_allclose(found, -distances.min(axis=0), rtol=1e-3)


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("num_axes", [3, 9])
def test_a_gaussian_of_few_axes_has_one_variance_along_all_others(
    num_axes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_constants, "MAX_AXES", num_axes)
    variances, axes = np.linalg.eigh(np.cov(MIDDLE.astype(np.float64).T, bias=True))
    variances = 0.9 * variances + 0.1 * variances.mean()
    variances[:-num_axes] = variances[:-num_axes].mean()
    along = (NEW.middle.numpy() - MIDDLE.mean(axis=0, dtype=np.float64)) @ axes
    found = part_of_new("middle", part_constants.of_all(MIDDLE))
    np.testing.assert_allclose(found, -(along**2 / variances).sum(axis=1), rtol=1e-4)


@pytest.mark.usefixtures("either_form")
def test_a_class_of_few_axes_agrees_with_its_own_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Along all axes but the least the form is exact; with every axis it is the whole covariance."""
    whole = part_of_new("features", part_constants.of_classes(FEATURES, LABELS))
    monkeypatch.setattr(part_constants, "MAX_AXES", NUM_FEATURES - 1)
    np.testing.assert_allclose(part_of_new("features", part_constants.of_classes(FEATURES, LABELS)), whole, rtol=1e-3)


def test_the_neighbour_is_the_fifth_of_scikit_learn() -> None:
    constants = part_constants.bank(FEATURES, np.random.default_rng(0))
    search = NearestNeighbors(n_neighbors=part_constants.NUM_NEIGHBOURS, metric="cosine").fit(constants["bank"].T)
    distances, _ = search.kneighbors(NEW.features.numpy())
    np.testing.assert_allclose(part_of_new("neighbours", constants), 1 - distances[:, -1], atol=1e-5)


def all_parts(weights: tuple[float, ...]) -> Score:
    constants = {
        "norm_gap": {},
        "features": part_constants.of_classes(FEATURES, LABELS),
        "middle": part_constants.of_all(MIDDLE),
        "neighbours": part_constants.bank(FEATURES, np.random.default_rng(0)),
    }
    info = ScoreInfo(
        name="fitted", parts=("mmles", *constants), weights=weights, means=(1.0, 2.0, -30.0, -10.0, 0.5),
        deviations=(0.5, 3.0, 10.0, 4.0, 0.1), fitted_on="by hand",
    )  # fmt: skip
    return Score(info, OwnScore("mmles", 1.0), constants)


def test_the_score_is_what_the_manifest_says_it_is() -> None:
    score = all_parts((0.5, 1.0, 0.25, 2.0, 0.75))
    fitted, parts = score(NEW)
    info = score.info
    standard = (parts.double().numpy() - np.array(info.means)) / np.array(info.deviations)
    np.testing.assert_allclose(fitted, standard @ np.array(info.weights), rtol=1e-4)
    np.testing.assert_array_equal(parts[:, 0], own_score("mmles")(NEW)[0])
    assert fitted.shape == (50,) and parts.shape == (50, 5)


def test_parts_without_weight_are_not_served_and_do_not_change_the_score() -> None:
    score = all_parts((0.0, 1.0, 0.0, 2.0, 0.0))
    lean = score.lean()
    assert lean.info.parts == ("mmles", "norm_gap", "middle")
    torch.testing.assert_close(lean(NEW)[0], score(NEW)[0])


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e6])
def test_no_part_is_nan_on_extreme_readings(size: float) -> None:
    reading = Reading(*(size * torch.sign(part) for part in NEW))
    fitted, parts = all_parts((1.0,) * 5)(reading)
    assert torch.isfinite(parts).all() and torch.isfinite(fitted).all()


def test_constants_of_images_that_do_not_vary_are_finite() -> None:
    same = np.ones((20, 6), np.float32)
    for constants in (part_constants.of_all(same), part_constants.of_classes(same, np.arange(20) % 2)):
        assert all(torch.isfinite(tensor).all() for tensor in constants.values())
