"""The stage `calibrate` on a genuine small run."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from portcullis.bundle import gate
from portcullis_training.data import ImageSet, as_array, to_float
from portcullis_training.data.outside import short_name
from portcullis_training.errors import ConfigError, DataError
from portcullis_training.fitting import checkpoint
from portcullis_training.measuring.calibration import calibrate, calibrate_trained, load_calibration, load_score
from portcullis_training.measuring.metrics import Array, expected_calibration_error
from portcullis_training.measuring.temperature import probabilities_at
from portcullis_training.measuring.trained import open_trained
from portcullis_training.runs.directory import Run

pytestmark = pytest.mark.slow


def logits_of(run: Run, images: ImageSet) -> Array:
    with torch.inference_mode():
        logits: Array = checkpoint.load_classifier(run)(to_float(torch.from_numpy(as_array(images)))).numpy()
    return logits


def own(run: Run, **changes: str) -> Run:
    """The run with MMLES as its score."""
    return Run(run.directory, run.config.model_copy(update={"score": "own", **changes}))


def test_the_temperature_comes_from_validation_and_the_gate_from_calibration_images(trained_run: Run) -> None:
    calibration = calibrate(own(trained_run))
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
    at_one, calibrated = calibrate(own(trained_run)), calibrate(own(trained_run, score_temperature="calibrated"))
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


@pytest.mark.parametrize(("field", "value"), [("score_temperature", "calibrated"), ("score", "middle")])
def test_a_calibration_of_another_score_is_refused(trained_run: Run, field: str, value: str) -> None:
    calibrate(own(trained_run))
    with pytest.raises(ConfigError, match=f"other {field} than the run has now; calibrate again"):
        load_calibration(open_trained(own(trained_run, **{field: value})))


def test_the_fitted_score_is_fixed_before_the_calibration_images_are_read(evaluated_run: Run) -> None:
    """Other calibration images, the same score: nothing of them is in it."""
    trained = open_trained(evaluated_run)
    calibration, score = calibrate_trained(trained)
    fewer = trained.splits.calibration.subset(np.arange(50))
    other, again = calibrate_trained(replace(trained, splits=replace(trained.splits, calibration=fewer)))
    assert calibration.score == other.score and calibration.scores != other.scores
    assert calibration.rows is not None and other.rows is not None
    assert calibration.rows.probability_grid == other.rows.probability_grid, "nor in the candidates of right99"
    for part, constants in score.constants.items():
        for name, tensor in constants.items():
            np.testing.assert_array_equal(tensor, again.constants[part][name])


def test_every_calibration_image_has_a_row_by_rising_score(evaluated_run: Run) -> None:
    trained = open_trained(evaluated_run)
    calibration = load_calibration(trained)
    rows, split = calibration.rows, trained.splits.calibration
    assert rows is not None and calibration.score.name == "fitted"
    logits = logits_of(evaluated_run, split)
    answers = load_score(trained, calibration)(trained.readings_of("calibration", split).as_tensors())
    order = np.argsort(answers[0].numpy(), kind="stable")
    np.testing.assert_allclose(calibration.scores.scores, answers[0].numpy()[order])
    np.testing.assert_array_equal(rows.class_indices, logits.argmax(axis=1)[order])
    np.testing.assert_array_equal(rows.is_right, (logits.argmax(axis=1) == split.labels)[order])
    np.testing.assert_allclose(rows.parts["mmles"], answers[1].numpy()[order, 0])
    probabilities = probabilities_at(logits, calibration.temperature)[order]
    np.testing.assert_allclose(rows.probabilities, probabilities.max(axis=1), atol=1e-5)
    np.testing.assert_allclose(
        rows.true_probabilities, probabilities[np.arange(len(order)), split.labels[order]], atol=1e-5
    )


def test_constants_other_than_those_of_the_calibration_are_refused(evaluated_run: Run) -> None:
    trained = open_trained(evaluated_run)
    (evaluated_run.directory / "score.npz").write_bytes(b"others")
    with pytest.raises(ConfigError, match=r"score\.npz is missing or not the score that the run was calibrated with"):
        load_score(trained, load_calibration(trained))


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
