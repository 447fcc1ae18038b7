"""Predictions: one shape for classifier and bundle, and a cache that never answers for other weights or images."""

from pathlib import Path

import numpy as np
import pytest

from training import methods
from training.data import ArrayImages, ImageSet
from training.metrics import Array
from training.predictions import cached, from_logits
from training.scores import mmles

LOGITS = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)


def image_set(seed: int) -> ArrayImages:
    images = np.random.default_rng(seed).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    return ArrayImages(images, np.zeros(5, dtype=np.int64))


class Counting:
    """Logits that tell how often they were asked for."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, name: str, images: ImageSet) -> Array:
        self.num_calls += 1
        return np.full((len(images), 3), self.num_calls, dtype=np.float32)


def test_the_cache_answers_for_the_same_weights_and_images(tmp_path: Path) -> None:
    logits_of = Counting()
    first = cached(logits_of, tmp_path, key="weights")("test", image_set(0))
    again = cached(logits_of, tmp_path, key="weights")("test", image_set(0))
    assert logits_of.num_calls == 1
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(("key", "seed"), [("other weights", 0), ("weights", 1)])
def test_the_cache_does_not_answer_for_other_weights_or_images(tmp_path: Path, key: str, seed: int) -> None:
    logits_of = Counting()
    cached(logits_of, tmp_path, key="weights")("test", image_set(0))
    logits = cached(logits_of, tmp_path, key=key)("test", image_set(seed))
    assert logits_of.num_calls == 2
    assert (logits == 2).all()


def test_a_broken_cache_is_computed_anew(tmp_path: Path) -> None:
    logits_of = Counting()
    cached(logits_of, tmp_path, key="weights")("test", image_set(0))
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:40])
    cached(logits_of, tmp_path, key="weights")("test", image_set(0))
    assert logits_of.num_calls == 2


def test_probabilities_use_the_temperature_and_the_shipped_score_its_own() -> None:
    predictions = from_logits(LOGITS, methods.find("dismax"), temperature=0.2, score_temperature=1.0)
    exponentials = np.exp(LOGITS.astype(np.float64) / 0.2)
    np.testing.assert_allclose(
        predictions.probabilities, exponentials / exponentials.sum(axis=1, keepdims=True), atol=1e-6
    )
    assert predictions.shipped_score == "mmles"
    np.testing.assert_allclose(predictions.score, _mmles(LOGITS), atol=1e-6)


def test_a_score_may_use_the_temperature_too() -> None:
    predictions = from_logits(LOGITS, methods.find("dismax"), temperature=0.2, score_temperature=0.2)
    assert predictions.shipped_score == "mmles_calibrated"
    np.testing.assert_allclose(predictions.score, _mmles(LOGITS / 0.2), atol=1e-5)


def _mmles(logits: Array) -> Array:
    import torch

    scores: Array = mmles(torch.from_numpy(logits)).numpy()
    return scores
