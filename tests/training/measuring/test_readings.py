"""Readings: what a classifier shows, and a cache that never answers for other weights or images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from portcullis_training import backbones, methods
from portcullis_training.data import ArrayImages, ImageSet, to_float
from portcullis_training.fitting.classifier import Classifier, Reading
from portcullis_training.measuring.readings import Readings, cached, of_classifier


def image_set(seed: int) -> ArrayImages:
    images = np.random.default_rng(seed).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    return ArrayImages(images, np.zeros(5, dtype=np.int64))


class Counting:
    """Readings that tell how often they were asked for."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, name: str, images: ImageSet) -> Readings:
        self.num_calls += 1
        return Readings(*(np.full((len(images), width), self.num_calls, dtype=np.float32) for width in (3, 5, 7, 0)))


def test_the_cache_answers_for_the_same_weights_and_images(tmp_path: Path) -> None:
    readings_of = Counting()
    first = cached(readings_of, tmp_path, key="weights")("test", image_set(0))
    again = cached(readings_of, tmp_path, key="weights")("test", image_set(0))
    assert readings_of.num_calls == 1
    for kept, read in zip(first, again, strict=True):
        np.testing.assert_array_equal(kept, read)


@pytest.mark.parametrize(("key", "seed"), [("other weights", 0), ("weights", 1)])
def test_the_cache_does_not_answer_for_other_weights_or_images(tmp_path: Path, key: str, seed: int) -> None:
    readings_of = Counting()
    cached(readings_of, tmp_path, key="weights")("test", image_set(0))
    readings = cached(readings_of, tmp_path, key=key)("test", image_set(seed))
    assert readings_of.num_calls == 2
    assert (readings.logits == 2).all()


def test_a_broken_cache_is_computed_anew(tmp_path: Path) -> None:
    readings_of = Counting()
    cached(readings_of, tmp_path, key="weights")("test", image_set(0))
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:40])
    cached(readings_of, tmp_path, key="weights")("test", image_set(0))
    assert readings_of.num_calls == 2


class Rounding(nn.Module):
    """Tells whether cuDNN may round while it runs."""

    def read(self, images: Tensor) -> Reading:
        rounds = torch.full((len(images), 2), float(torch.backends.cudnn.allow_tf32))
        return Reading(rounds, rounds, rounds, rounds[:, :0])


def test_what_the_gate_is_calibrated_on_is_computed_in_full_precision() -> None:
    readings = of_classifier(Rounding(), torch.device("cpu"))("test", image_set(0))  # type: ignore[arg-type]
    assert not readings.logits.any()
    assert torch.backends.cudnn.allow_tf32, "training is left as it was"


def test_a_reading_is_the_logits_the_features_and_the_spatial_means_of_the_middle_block() -> None:
    torch.manual_seed(0)
    backbone = backbones.build("small")
    classifier = Classifier(
        backbone, methods.find("dismax").make_head(backbone.num_features, 4), (0.5,) * 3, (0.2,) * 3
    )
    images = image_set(0)
    readings = of_classifier(classifier, torch.device("cpu"))("test", images)
    with torch.inference_mode():
        floats = to_float(torch.from_numpy(images.images))
        normalised = (floats - classifier.mean) / classifier.std
        assert isinstance(backbone.body, nn.Sequential)
        middle = backbone.body[:3](normalised).mean(dim=(2, 3))  # before the map is halved for the last time
        np.testing.assert_allclose(readings.logits, classifier(floats), atol=1e-6)
        np.testing.assert_allclose(readings.features, classifier.features(floats), atol=1e-6)
        np.testing.assert_allclose(readings.middle, middle, atol=1e-6)
