"""Predictions: what a torch classifier or a served bundle answers for a set of images, in one shape for both."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from portcullis.bundle.engine import Engine
from portcullis.bundle.manifest import FITTED
from portcullis_training.data import ImageSet
from portcullis_training.graph.score import Score
from portcullis_training.measuring.metrics import Array
from portcullis_training.measuring.readings import Readings, ReadingsOf, in_batches
from portcullis_training.measuring.temperature import probabilities_at
from portcullis_training.methods import Method

CALIBRATED = "_calibrated"
"""Suffix of a score computed on L / T; without it, on L."""
WITHOUT = f"{FITTED}_without_"
"""Prefix of the fitted score that has all parts but one."""
Ablation = Mapping[str, tuple[float, ...]]
"""By part, the weights of all parts where the score is fitted without that one."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Answers for N images, row by row."""

    probabilities: Array  # (N, C), calibrated
    scores: dict[str, Array]  # by name, (N,) each; higher is more familiar
    shipped_score: str
    """Which of the scores the gate compares with its threshold."""
    parts: dict[str, Array]
    """Of the shipped score, by the names that a manifest has for them."""
    logits: Array | None = None  # (N, C); a served bundle does not show them

    @property
    def score(self) -> Array:
        """The scores that the gate sees."""
        return self.scores[self.shipped_score]

    @property
    def mean_logits(self) -> Array:
        """The mean over the classes, which the paper draws inside and outside; (N,)."""
        assert self.logits is not None, "a served bundle shows no logits"
        return self.logits.mean(axis=1)


class Predict(Protocol):
    """Answers for a named set of images."""

    def __call__(self, name: str, images: ImageSet) -> Predictions: ...


def of_engine(engine: Engine, score_name: str, part_names: tuple[str, ...], num_workers: int = 0) -> Predict:
    """Predictions of a served bundle, by the service's own engine."""

    def predict(name: str, images: ImageSet) -> Predictions:
        outputs = [engine.run(batch.numpy()) for batch in in_batches(name, images, num_workers)]
        scores = np.concatenate([output.scores for output in outputs])
        columns = np.concatenate([output.parts for output in outputs]).T
        parts = dict(zip(part_names, columns, strict=True))
        probabilities = np.concatenate([output.probabilities for output in outputs])
        return Predictions(probabilities, {score_name: scores, **parts}, score_name, parts)

    return predict


def of_readings(
    readings_of: ReadingsOf, method: Method, temperature: float, score: Score, ablation: Ablation | None = None
) -> Predict:
    """Predictions from a classifier's readings."""

    def predict(name: str, images: ImageSet) -> Predictions:
        return from_readings(readings_of(name, images), method, temperature, score, ablation)

    return predict


@torch.inference_mode()
def from_readings(
    readings: Readings, method: Method, temperature: float, score: Score, ablation: Ablation | None = None
) -> Predictions:
    """Probabilities at the fitted temperature; the score and its parts; all scores of logits at both temperatures."""
    fitted, columns = score(readings.as_tensors())
    parts = {name: column.numpy() for name, column in zip(score.info.parts, columns.T, strict=True)}
    own, *others = parts
    scores = {own + (CALIBRATED if score.own.temperature != 1 else ""): parts[own]}
    scores |= {name: parts[name] for name in others}
    shipped = next(iter(scores)) if score.info.name == own else score.info.name
    if shipped == FITTED:
        scores = {FITTED: fitted.numpy(), **_ablated(columns.numpy(), score, ablation or {}), **scores}
    for suffix, divisor in (("", 1.0), (CALIBRATED, temperature)):
        named = method.scores(torch.from_numpy(readings.logits) / divisor)
        scores |= {name + suffix: values.numpy() for name, values in named.items()}
    return Predictions(probabilities_at(readings.logits, temperature), scores, shipped, parts, readings.logits)


def _ablated(parts: Array, score: Score, ablation: Ablation) -> dict[str, Array]:
    deviations = np.array(score.info.deviations)
    return {WITHOUT + name: parts @ (np.array(weights) / deviations) for name, weights in ablation.items()}
