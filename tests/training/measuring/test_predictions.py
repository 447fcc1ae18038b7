"""Predictions: probabilities, the score that ships and everything that is measured beside it."""

import numpy as np
import torch

from portcullis_training import methods
from portcullis_training.graph.score import own_score
from portcullis_training.measuring.metrics import Array
from portcullis_training.measuring.predictions import from_readings
from portcullis_training.measuring.readings import Readings
from portcullis_training.methods.formulas.scores import mmles

LOGITS = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
READINGS = Readings(LOGITS, LOGITS, LOGITS, LOGITS[:, :0])


def test_probabilities_use_the_temperature_and_the_shipped_score_its_own() -> None:
    predictions = from_readings(READINGS, methods.find("dismax"), 0.2, own_score("mmles"))
    exponentials = np.exp(LOGITS.astype(np.float64) / 0.2)
    np.testing.assert_allclose(
        predictions.probabilities, exponentials / exponentials.sum(axis=1, keepdims=True), atol=1e-6
    )
    assert predictions.shipped_score == "mmles"
    np.testing.assert_allclose(predictions.score, _mmles(LOGITS), atol=1e-6)


def test_a_score_may_use_the_temperature_too() -> None:
    predictions = from_readings(READINGS, methods.find("dismax"), 0.2, own_score("mmles", 0.2))
    assert predictions.shipped_score == "mmles_calibrated"
    np.testing.assert_allclose(predictions.score, _mmles(LOGITS / 0.2), atol=1e-5)


def _mmles(logits: Array) -> Array:
    scores: Array = mmles(torch.from_numpy(logits)).numpy()
    return scores
