"""Evaluate: one function for a torch classifier or a served bundle.

Every figure names its positive class, since a detection figure without it says nothing.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from portcullis.bundle.manifest import OperatingPoint
from portcullis_training.data import ImageSet
from portcullis_training.measuring import metrics
from portcullis_training.measuring.calibration import CALIBRATION, Calibration, load_calibration, load_score
from portcullis_training.measuring.cost import relative_inference_cost, relative_score_cost
from portcullis_training.measuring.metrics import Array
from portcullis_training.measuring.predictions import (
    Predict,
    Predictions,
    of_readings,
)
from portcullis_training.measuring.temperature import probabilities_at
from portcullis_training.measuring.trained import Trained, open_trained
from portcullis_training.runs.artefact import Artefact, Origins
from portcullis_training.runs.directory import Run

NUM_QUANTILES = 201
COVERAGES = (0.5, 0.8, 0.9, 0.95, 1.0)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DetectionFigures(_Frozen):
    """How well one score tells one outside set from the inside test images."""

    auroc_inside_positive: float
    aupr_inside_positive: float
    aupr_outside_positive: float
    tnr_at_tpr95_inside_positive: float


class ReliabilityBin(_Frozen):
    """One of the bins that the calibration error is summed over."""

    num_images: int
    mean_probability: float
    accuracy: float


class InsideFigures(_Frozen):
    """On test images that neither training nor calibration saw."""

    num_images: int
    accuracy: float
    ece: float
    ece_at_temperature_one: float | None
    """Before calibration; a served bundle cannot tell."""
    nll: float
    brier: float
    area_under_risk_coverage_by_probability: float
    area_under_risk_coverage_by_score: float
    risk_at_coverage_by_probability: dict[str, float]
    """Share of wrong answers among the most probable so many per cent."""
    reliability: tuple[ReliabilityBin, ...]
    rejected: dict[str, float]
    """Share rejected at each operating point."""


class OutsideSetFigures(_Frozen):
    """Of one outside set."""

    num_images: int
    by_score: dict[str, DetectionFigures]
    caught: dict[str, float]
    """Share rejected at each operating point by the shipped score."""
    score_quantiles: tuple[float, ...]
    """Evenly spaced quantiles of the shipped score, smallest first."""


class Evaluation(_Frozen):
    """What figures.json holds."""

    checkpoint: str
    """sha256 of the weights that were evaluated."""
    shipped_score: str
    inside: InsideFigures
    outside: dict[str, OutsideSetFigures]
    inference_cost_relative_to_softmax: dict[str, float] = {}
    """By batch size: time per image of the exported graph over that of the same backbone with a linear head; empty
    where it was not asked for, without the batches that would have taken too long."""
    score_cost_relative_to_own: dict[str, float] = {}
    """The same of the graph with the fitted score over that with the method's own score alone."""


FIGURES = Artefact("figures.json", Evaluation, "evaluate")


def evaluate(run: Run, *, time_cost: bool = True) -> Evaluation:
    """Measure a calibrated run on its test and outside images, and keep the figures in its figures.json.

    `time_cost`: time the exported graph beside its SoftMax twin too, which takes seconds of an idle core.
    """
    trained = open_trained(run)
    calibration = load_calibration(trained)
    evaluation = measure(
        predict_of(trained, calibration),
        trained.splits.test,
        trained.outside_sets(),
        calibration.operating_points,
        checkpoint=trained.digest,
    )
    if time_cost:
        image = trained.splits.image_spec
        costs = {
            "inference_cost_relative_to_softmax": relative_inference_cost(trained.classifier, trained.method, image)
        }
        score = load_score(trained, calibration)
        if trained.method.export_refusal is None and len(score.info.parts) > 1:  # else it is the same graph
            costs["score_cost_relative_to_own"] = relative_score_cost(trained.classifier, score, image)
        evaluation = evaluation.model_copy(update=costs)
    FIGURES.write(run, evaluation, _origins(trained))
    return evaluation


def measure(
    predict: Predict,
    test: ImageSet,
    outside: Mapping[str, ImageSet],
    operating_points: Sequence[OperatingPoint],
    *,
    checkpoint: str,
) -> Evaluation:
    """All figures of whatever answers `predict`."""
    inside = predict("test", test)
    sets = {name: predict(f"outside {name}", images) for name, images in outside.items()}
    return Evaluation(
        checkpoint=checkpoint,
        shipped_score=inside.shipped_score,
        inside=_inside_figures(inside, test.labels, operating_points),
        outside={name: _outside_figures(inside, answers, operating_points) for name, answers in sets.items()},
    )


def predict_of(trained: Trained, calibration: Calibration) -> Predict:
    """Predictions of a calibrated run."""
    score = load_score(trained, calibration)
    return of_readings(trained.readings_of, trained.method, calibration.temperature, score, calibration.ablation)


def load_evaluation(trained: Trained) -> Evaluation:
    """The figures of these very weights, of the calibration beside them and of the config's outside sets."""
    return FIGURES.read(trained.run, _origins(trained))


def _origins(trained: Trained) -> Origins:
    return {
        "weights": trained.digest,
        "calibration": CALIBRATION.digest(trained.run),
        "outside sets": " ".join(trained.run.config.outside),
    }


def detection_figures(inside: Array, outside: Array) -> DetectionFigures:
    """All detection figures of one score; higher is more familiar."""
    return DetectionFigures(
        auroc_inside_positive=metrics.auroc(inside, outside),
        aupr_inside_positive=metrics.aupr_inside_positive(inside, outside),
        aupr_outside_positive=metrics.aupr_outside_positive(inside, outside),
        tnr_at_tpr95_inside_positive=metrics.tnr_at_tpr95(inside, outside),
    )


def _inside_figures(inside: Predictions, labels: metrics.Indices, points: Sequence[OperatingPoint]) -> InsideFigures:
    probabilities = inside.probabilities
    is_correct = probabilities.argmax(axis=1) == labels
    by_probability = metrics.risk_coverage(probabilities.max(axis=1), is_correct)
    by_score = metrics.risk_coverage(inside.score, is_correct)
    before = None
    if inside.logits is not None:
        before = metrics.expected_calibration_error(probabilities_at(inside.logits, 1.0), labels)
    return InsideFigures(
        num_images=len(labels),
        accuracy=metrics.accuracy(probabilities, labels),
        ece=metrics.expected_calibration_error(probabilities, labels),
        ece_at_temperature_one=before,
        nll=metrics.negative_log_likelihood(probabilities, labels),
        brier=metrics.brier(probabilities, labels),
        area_under_risk_coverage_by_probability=metrics.area_under_risk_coverage(by_probability),
        area_under_risk_coverage_by_score=metrics.area_under_risk_coverage(by_score),
        risk_at_coverage_by_probability={f"{share:.0%}": metrics.risk_at(by_probability, share) for share in COVERAGES},
        reliability=_reliability(probabilities, labels),
        rejected=_rejected(inside.score, points),
    )


def _outside_figures(inside: Predictions, outside: Predictions, points: Sequence[OperatingPoint]) -> OutsideSetFigures:
    quantiles = np.quantile(outside.score, np.linspace(0, 1, NUM_QUANTILES))
    return OutsideSetFigures(
        num_images=len(outside.score),
        by_score={name: detection_figures(inside.scores[name], scores) for name, scores in outside.scores.items()},
        caught=_rejected(outside.score, points),
        score_quantiles=tuple(quantiles.tolist()),
    )


def _rejected(scores: Array, points: Sequence[OperatingPoint]) -> dict[str, float]:
    return {point.name: float((scores < point.threshold).mean()) for point in points}


def _reliability(probabilities: Array, labels: metrics.Indices) -> tuple[ReliabilityBin, ...]:
    bins = metrics.reliability_bins(probabilities, labels)
    return tuple(
        ReliabilityBin(num_images=count, mean_probability=probability, accuracy=share)
        for count, probability, share in zip(*(column.tolist() for column in bins), strict=True)
    )
