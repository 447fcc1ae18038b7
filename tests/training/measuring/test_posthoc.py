"""Post-hoc scores: what the library computes, turned so that higher is more familiar."""

import numpy as np
import torch
from scipy import special

from portcullis_training.measuring.posthoc import (
    energy,
    fit_knn,
    knn,
    max_logit,
)


def test_energy_and_max_logit_equal_their_definitions_and_point_our_way() -> None:
    logits = np.random.default_rng(0).normal(size=(20, 5))
    np.testing.assert_allclose(energy(torch.tensor(logits)), special.logsumexp(logits, axis=1))
    np.testing.assert_allclose(max_logit(torch.tensor(logits)), logits.max(axis=1))


def test_knn_is_minus_the_distance_to_the_50th_normalised_neighbour() -> None:
    generator = np.random.default_rng(0)
    known, new = generator.normal(size=(200, 8)), generator.normal(size=(7, 8))
    scores = knn(fit_knn(torch.tensor(known)), torch.tensor(new))
    directions = known / np.linalg.norm(known, axis=1, keepdims=True)
    towards = new / np.linalg.norm(new, axis=1, keepdims=True)
    distances = np.sort(np.linalg.norm(towards[:, None] - directions[None], axis=2), axis=1)
    np.testing.assert_allclose(scores, -distances[:, 49], atol=1e-6)
