"""The stage `calibrate` on a genuine small run."""

import numpy as np
import pytest
import torch

from service import gate
from training import checkpoint
from training.calibrate import calibrate, load_calibration
from training.data import ImageSet, as_array, to_float
from training.errors import ConfigError, DataError
from training.metrics import Array, expected_calibration_error
from training.runs import Run
from training.temperature import probabilities_at
from training.trained import open_trained, short_name

pytestmark = pytest.mark.slow


def logits_of(run: Run, images: ImageSet) -> Array:
    with torch.inference_mode():
        logits: Array = checkpoint.load_classifier(run)(to_float(torch.from_numpy(as_array(images)))).numpy()
    return logits


def test_the_temperature_comes_from_validation_and_the_gate_from_calibration_images(trained_run: Run) -> None:
    calibration = calibrate(trained_run)
    splits = open_trained(trained_run).splits
    validation = logits_of(trained_run, splits.validation)
    after = expected_calibration_error(probabilities_at(validation, calibration.temperature), splits.validation.labels)
    assert calibration.fit.ece_after == pytest.approx(after, abs=1e-5)
    assert calibration.fit.ece_after <= calibration.fit.ece_before

    logits = logits_of(trained_run, splits.calibration)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    negative_entropy = (np.exp(log_probabilities) * log_probabilities).sum(axis=1)
    scores = np.sort(logits.max(axis=1) + logits.mean(axis=1) + negative_entropy)
    np.testing.assert_allclose(calibration.scores.scores, scores, atol=1e-4)
    mix = np.bincount(logits.argmax(axis=1), minlength=10) / len(logits)
    np.testing.assert_allclose(calibration.class_mix, mix)
    assert [point.name for point in calibration.operating_points] == list(gate.PUBLISHED)


def test_the_score_takes_the_temperature_where_the_config_says_so(trained_run: Run) -> None:
    run = Run(trained_run.directory, trained_run.config.model_copy(update={"score_temperature": "calibrated"}))
    at_one, calibrated = calibrate(trained_run), calibrate(run)
    assert (at_one.score_temperature, calibrated.score_temperature) == (1.0, at_one.temperature)
    assert at_one.scores.scores != calibrated.scores.scores


def test_a_calibration_of_other_weights_is_refused(trained_run: Run) -> None:
    calibrate(trained_run)
    saved = checkpoint.load(trained_run.checkpoint_path)
    first = next(iter(saved.classifier.values()))
    first.add_(0.1)
    checkpoint.save(trained_run.checkpoint_path, saved)
    with pytest.raises(ConfigError, match="other weights"):
        load_calibration(open_trained(trained_run))


def test_images_other_than_those_of_the_training_are_refused(trained_run: Run) -> None:
    run = Run(trained_run.directory, trained_run.config.model_copy(update={"seed": 1}))
    with pytest.raises(DataError, match="not those that"):
        calibrate(run)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("npz:/data/cifar10_train.npz,/data/cifar10_test.npz", "cifar10_test"),
        ("folder:/data/cats/", "cats"),
        ("svhn", "svhn"),
        ("noise:uniform", "noise:uniform"),
    ],
)
def test_short_names_hold_no_directories(spec: str, name: str) -> None:
    assert short_name(spec) == name
