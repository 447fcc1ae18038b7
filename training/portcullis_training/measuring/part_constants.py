"""Constants of a score's parts from training images: means, shrunk covariances, a bank of features. In float64."""

import numpy as np
import torch
from numpy.typing import NDArray

from portcullis_training.graph.score_parts import Constants
from portcullis_training.measuring.metrics import Array, Indices

SHRINKAGE = 0.1
"""Share of the mean variance in every variance: few images know little of the smallest ones."""
MAX_AXES = 128
"""Directions that have a variance of their own; more cost time and, measured, gain nothing."""
BANK_SIZE = 500
MAX_BANK_NUMBERS = 512 * 1024
"""Of wide features the bank has fewer images: all of it is read from memory for every image that is answered."""
NUM_NEIGHBOURS = 5


def of_all(vectors: Array) -> Constants:
    """One Gaussian for all images: constants of MiddleDistance."""
    centre = vectors.mean(axis=0, dtype=np.float64)
    return _tensors(centre=centre, **_shape(vectors - centre))


def of_classes(features: Array, labels: Indices) -> Constants:
    """A Gaussian a class on the directions of features, one covariance for all: constants of ClassDistance."""
    units = unit(features)
    centre = units.mean(axis=0)
    present, classes = np.unique(labels, return_inverse=True)
    means = np.stack([units[classes == number].mean(axis=0) for number in range(len(present))])
    shape = _shape(units - means[classes])
    centred = means - centre  # (C, d)
    solved = (centred @ shape["axes"] * shape["scales"].T) @ shape["axes"].T + shape["rest"] * centred  # Σ⁻¹ μ
    return _tensors(centre=centre, **shape, weights=-2 * solved.T, offsets=(centred * solved).sum(axis=1))


def bank(features: Array, random: np.random.Generator) -> Constants:
    """Directions of some images: constants of Neighbours."""
    size = min(len(features), BANK_SIZE, max(NUM_NEIGHBOURS, MAX_BANK_NUMBERS // features.shape[1]))
    chosen = np.sort(random.permutation(len(features))[:size])
    return _tensors(bank=unit(features[chosen]).T, rank=np.array(min(NUM_NEIGHBOURS, size)))


def unit(vectors: Array) -> NDArray[np.float64]:
    """v / ‖v‖; zero stays zero."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)


def _shape(residuals: Array) -> dict[str, NDArray[np.float64]]:
    """Axes, scales and rest of a Gaussian: the leading directions exactly, all others with their mean variance."""
    residuals = residuals.astype(np.float64)
    variances, axes = np.linalg.eigh(residuals.T @ residuals / len(residuals))  # rising
    floor = max(variances.mean(), 1e-12)  # where nothing varies, anything is far
    variances = (1 - SHRINKAGE) * np.maximum(variances, 0) + SHRINKAGE * floor
    if len(variances) <= MAX_AXES:
        return {"axes": axes, "scales": 1 / variances[:, None], "rest": np.zeros(())}
    rest = 1 / variances[:-MAX_AXES].mean()
    leading = slice(-MAX_AXES, None)
    return {"axes": axes[:, leading], "scales": 1 / variances[leading, None] - rest, "rest": np.array(rest)}


def _tensors(**arrays: NDArray[np.float64]) -> Constants:
    return {name: torch.from_numpy(np.ascontiguousarray(array)).float() for name, array in arrays.items()}
