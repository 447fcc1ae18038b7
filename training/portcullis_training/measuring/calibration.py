"""Calibrate a trained run: temperature and score on training and validation images, the gate on its own split."""

from collections.abc import Callable

import numpy as np
from pydantic import BaseModel, ConfigDict

from portcullis.bundle import gate
from portcullis.bundle.manifest import (
    MAX_CALIBRATION_ROWS,
    CalibrationRows,
    CalibrationScores,
    OperatingPoint,
    ScoreInfo,
)
from portcullis_training.graph.score import Score
from portcullis_training.graph.score_parts import OwnScore
from portcullis_training.measuring import kept_score
from portcullis_training.measuring.fitted_score import FittedScore, FittingImages, fit_score
from portcullis_training.measuring.metrics import Array, Indices
from portcullis_training.measuring.predictions import Predictions, from_readings
from portcullis_training.measuring.temperature import TemperatureFit, fit_temperature, probabilities_at
from portcullis_training.measuring.trained import Trained, open_trained
from portcullis_training.runs.artefact import Artefact, Origins
from portcullis_training.runs.directory import Run

OWN = "own"
"""In a config, the method's own score."""
NUM_GRID_PROBABILITIES = 200


class Calibration(BaseModel):
    """What calibration.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fit: TemperatureFit
    """The temperature, with the figures before and after on the validation images."""
    score: ScoreInfo
    """The score that the gate compares, with all its parts, those without weight too."""
    score_constants: str
    """sha256 of the constants of its parts, in score.npz."""
    ablation: dict[str, tuple[float, ...]]
    """By part, the weights of all parts where the score is fitted without that one."""
    score_temperature: float
    """What the logits are divided by inside the method's own score: 1, or the temperature."""
    scores: CalibrationScores
    operating_points: tuple[OperatingPoint, ...]
    rows: CalibrationRows | None
    """Every calibration image, where there are not too many for a manifest."""
    class_mix: tuple[float, ...]
    """Share of each predicted class among the calibration images."""

    @property
    def temperature(self) -> float:
        """Divides the logits in the probabilities."""
        return self.fit.temperature


CALIBRATION = Artefact("calibration.json", Calibration, "calibrate")


def calibrate(run: Run) -> Calibration:
    """Fit the temperature, the score and the gate of a trained run, and keep them beside it."""
    trained = open_trained(run)
    calibration, score = calibrate_trained(trained)
    kept_score.keep(run, score)
    CALIBRATION.write(run, calibration, _origins(trained))
    return calibration


def calibrate_trained(trained: Trained) -> tuple[Calibration, Score]:
    """Training and validation images give temperature and score; then calibration images, seen by nothing, the gate."""
    return calibrate_by(trained, fit_temperature)


def calibrate_by(trained: Trained, fit_to: Callable[[Array, Indices], TemperatureFit]) -> tuple[Calibration, Score]:
    """The same with another rule for the temperature, from validation logits and labels."""
    validation = trained.splits.validation
    logits = trained.readings_of("validation", validation).logits
    fit = fit_to(logits, validation.labels)
    score_temperature = fit.temperature if trained.run.config.score_temperature == "calibrated" else 1.0
    fitted = _fitted(trained, score_temperature)
    grid = probability_grid(probabilities_at(logits, fit.temperature).max(axis=1))
    readings = trained.readings_of("calibration", trained.splits.calibration)
    predictions = from_readings(readings, trained.method, fit.temperature, fitted.score)
    scores = gate.summarise(predictions.score.tolist())
    calibration = Calibration(
        fit=fit,
        score=fitted.score.info,
        score_constants=kept_score.digest(fitted.score),
        ablation=fitted.ablation,
        score_temperature=score_temperature,
        scores=scores,
        operating_points=gate.operating_points(scores),
        rows=calibration_rows(predictions, trained.splits.calibration.labels, served_parts(fitted.score.info), grid),
        class_mix=class_mix(predictions),
    )
    return calibration, fitted.score


def _fitted(trained: Trained, score_temperature: float) -> FittedScore:
    config, own = trained.run.config, trained.method.score_name
    return fit_score(
        FittingImages(trained.splits.train, trained.splits.validation),
        trained.read,
        OwnScore(own, score_temperature),
        chosen=own if config.score == OWN else config.score,
        seed=config.seed,
    )


def served_parts(info: ScoreInfo) -> tuple[str, ...]:
    """The parts that are served: those that have a weight, and the method's own score."""
    own, *others = zip(info.parts, info.weights, strict=True)
    return (own[0], *(name for name, weight in others if weight > 0))


def calibration_rows(
    predictions: Predictions, labels: Indices, parts: tuple[str, ...], grid: tuple[float, ...]
) -> CalibrationRows | None:
    """One row an image by rising score; none where a manifest would grow too large."""
    if len(labels) > MAX_CALIBRATION_ROWS:
        return None
    order = np.argsort(predictions.score, kind="stable")
    probabilities = predictions.probabilities[order]
    answered, truth = probabilities.argmax(axis=1), labels[order]
    return CalibrationRows(
        class_indices=tuple(answered.tolist()),
        probabilities=tuple(probabilities.max(axis=1).tolist()),
        is_right=tuple((answered == truth).tolist()),
        true_probabilities=tuple(probabilities[np.arange(len(truth)), truth].tolist()),
        parts={name: tuple(predictions.parts[name][order].tolist()) for name in parts},
        probability_grid=grid,
    )


def probability_grid(probabilities: Array) -> tuple[float, ...]:
    """Falling candidates for the least probability of an answer: evenly spaced quantiles of validation images."""
    quantiles = np.quantile(probabilities, np.linspace(1, 0, NUM_GRID_PROBABILITIES), method="lower")
    return tuple(dict.fromkeys(quantiles.tolist()))


def class_mix(predictions: Predictions) -> tuple[float, ...]:
    """Share of images answered with each class."""
    num_images, num_classes = predictions.probabilities.shape
    counts = np.bincount(predictions.probabilities.argmax(axis=1), minlength=num_classes)
    return tuple((counts / num_images).tolist())


def load_calibration(trained: Trained) -> Calibration:
    """The calibration of these very weights and of the score that the config asks for; another one is refused."""
    return CALIBRATION.read(trained.run, _origins(trained))


def load_score(trained: Trained, calibration: Calibration) -> Score:
    """The score of a calibration, with all its parts."""
    own = OwnScore(trained.method.score_name, calibration.score_temperature)
    return kept_score.load(trained.run, calibration.score, own, calibration.score_constants)


def _origins(trained: Trained) -> Origins:
    config = trained.run.config
    return {"weights": trained.digest, "score_temperature": config.score_temperature, "score": config.score}
