"""Calibrate a trained run: the temperature on the validation split, the gate on the calibration split."""

from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from service import gate
from service.bundle import CalibrationScores, OperatingPoint
from training import atomic
from training.errors import ConfigError
from training.predictions import Predictions, from_logits
from training.runs import Run
from training.temperature import TemperatureFit, fit_temperature
from training.trained import Trained, open_trained


class Calibration(BaseModel):
    """What calibration.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkpoint: str
    """sha256 of the weights that were calibrated."""
    fit: TemperatureFit
    """The temperature, with the figures before and after on the validation images."""
    score: str
    """Name of the score that the gate compares."""
    score_temperature: float
    """What the logits are divided by inside the score: 1, or the temperature."""
    scores: CalibrationScores
    operating_points: tuple[OperatingPoint, ...]
    class_mix: tuple[float, ...]
    """Share of each predicted class among the calibration images."""

    @property
    def temperature(self) -> float:
        """Divides the logits in the probabilities."""
        return self.fit.temperature


def calibrate(run: Run) -> Calibration:
    """Fit the temperature and the gate of a trained run, and keep them in its calibration.json."""
    trained = open_trained(run)
    calibration = calibrate_trained(trained)
    atomic.write_text(_path(run), calibration.model_dump_json(indent=1) + "\n")
    return calibration


def calibrate_trained(trained: Trained) -> Calibration:
    """Validation images give the temperature; calibration images, seen by nothing else, give the gate."""
    splits = trained.splits
    fit = fit_temperature(trained.logits_of("validation", splits.validation), splits.validation.labels)
    score_temperature = fit.temperature if trained.run.config.score_temperature == "calibrated" else 1.0
    logits = trained.logits_of("calibration", splits.calibration)
    predictions = from_logits(logits, trained.method, fit.temperature, score_temperature)
    scores = gate.summarise(predictions.score.tolist())
    return Calibration(
        checkpoint=trained.digest,
        fit=fit,
        score=trained.method.score_name,
        score_temperature=score_temperature,
        scores=scores,
        operating_points=gate.operating_points(scores),
        class_mix=class_mix(predictions),
    )


def class_mix(predictions: Predictions) -> tuple[float, ...]:
    """Share of images answered with each class."""
    num_images, num_classes = predictions.probabilities.shape
    counts = np.bincount(predictions.probabilities.argmax(axis=1), minlength=num_classes)
    return tuple((counts / num_images).tolist())


def load_calibration(trained: Trained) -> Calibration:
    """The calibration of these very weights; another one is refused."""
    path = _path(trained.run)
    if not path.is_file():
        raise ConfigError(f"{trained.run.directory} is not calibrated; run `portcullis-train calibrate` on it first")
    try:
        calibration = Calibration.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ConfigError(f"{path} is not a calibration: {error.errors()[0]['msg']}; calibrate again") from None
    if calibration.checkpoint != trained.digest:
        raise ConfigError(f"{path} belongs to other weights than the checkpoint beside it; calibrate again")
    return calibration


def _path(run: Run) -> Path:
    return run.directory / "calibration.json"
