"""Ablation: what every part of the score is worth, alone, in fixed sums, without one another; for twins side by side.

It starts from calibrated runs and fits nothing: parts and weights are those of the calibration. Outside sets are only
measured here. All scores: higher is more familiar.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from portcullis.bundle.manifest import FITTED, ScoreInfo
from portcullis_training.comparing.ablation_page import write_page
from portcullis_training.comparing.compare import parse_variant
from portcullis_training.data import ImageSet
from portcullis_training.errors import ConfigError
from portcullis_training.exporting.provenance import current_commit, portable_config
from portcullis_training.measuring.calibration import load_calibration
from portcullis_training.measuring.evaluation import DetectionFigures, detection_figures, predict_of
from portcullis_training.measuring.metrics import Array
from portcullis_training.measuring.posthoc import fit_knn, knn
from portcullis_training.measuring.predictions import WITHOUT, Predictions
from portcullis_training.measuring.trained import Trained, open_trained
from portcullis_training.runs import atomic
from portcullis_training.runs.directory import Run

ABLATION_FILE = "ablation.json"
MIDDLE = "middle"
MIDDLE_SHARE = 0.1
"""Weight of the middle block in the fixed sums, against 1 of the other part; chosen by hand."""

Kind = Literal["fitted", "part", "fixed", "without", "posthoc"]
Say = Callable[[str], None]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(_Frozen):
    """One score, against every outside set."""

    kind: Kind
    name: str
    weight: float | None = None
    """Of a part in the fitted score; 0 where it is left out of the graph."""
    outside: dict[str, DetectionFigures]

    @property
    def mean_auroc(self) -> float:
        """Over the outside sets, inside positive."""
        return statistics.mean(figures.auroc_inside_positive for figures in self.outside.values())


class AblatedRun(_Frozen):
    """All scores of one run."""

    name: str
    title: str
    """As tables print its method, mixing and members."""
    backbone: str
    data: str
    accuracy: float
    score: ScoreInfo
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row:
        """By the score's name."""
        return next(row for row in self.rows if row.name == name)


class Ablation(_Frozen):
    """What ablation.json holds."""

    commit: str
    runs: tuple[AblatedRun, ...]


def ablate(runs: Sequence[Run], output: Path, say: Say, *, with_knn: bool = True) -> Ablation:
    """Measure every score of every run; writes ablation.json, its page and its plot to `output`."""
    ablated = []
    for run in runs:
        say(f"{run.config.name}: {run.config.method} against {', '.join(run.config.outside)}")
        ablated.append(_ablated(open_trained(run), with_knn))
    if len({tuple(one.rows[0].outside) for one in ablated}) > 1:
        raise ConfigError("expected runs with the same outside sets; give --outside to measure all against the same")
    ablation = Ablation(commit=current_commit(Path(__file__).parent), runs=tuple(ablated))
    output.mkdir(parents=True, exist_ok=True)
    atomic.write_text(output / ABLATION_FILE, ablation.model_dump_json(indent=1) + "\n")
    write_page(ablation, output)
    return ablation


def _ablated(trained: Trained, with_knn: bool) -> AblatedRun:
    calibration = load_calibration(trained)
    if calibration.score.name != FITTED:
        raise ConfigError(f"{trained.run.directory}: expected a fitted score, got {calibration.score.name} alone")
    predict = predict_of(trained, calibration)
    test = predict("test", trained.splits.test)
    outside = {name: predict(f"outside {name}", images) for name, images in trained.outside_sets().items()}
    rows = [_row(kind, name, calibration.score, test, outside) for kind, name in _names(test, calibration.score)]
    config = portable_config(trained.run.config)
    return AblatedRun(
        name=config.name,
        title=parse_variant(config.variant).title,
        backbone=config.backbone,
        data=config.data,
        accuracy=float((test.probabilities.argmax(axis=1) == trained.splits.test.labels).mean()),
        score=calibration.score,
        rows=(*rows, *([_knn_row(trained)] if with_knn else [])),
    )


def _names(test: Predictions, info: ScoreInfo) -> Iterator[tuple[Kind, str]]:
    yield "fitted", FITTED
    for part in info.parts:
        yield "part", part
    for part in info.parts:
        if part != MIDDLE:
            yield "fixed", f"{part}+{MIDDLE}"
    for part in info.parts:
        yield "without", WITHOUT + part
    for name in ("max_probability", "max_logit"):
        if name not in info.parts and name in test.scores:
            yield "posthoc", name


def _row(kind: Kind, name: str, info: ScoreInfo, test: Predictions, outside: Mapping[str, Predictions]) -> Row:
    def scores_of(predictions: Predictions) -> Array:
        if kind == "fixed":
            return _fixed_sum(name, info, predictions)
        return predictions.parts[name] if kind == "part" else predictions.scores[name]

    weight = info.weights[info.parts.index(name)] if kind == "part" else None
    inside = scores_of(test)
    figures = {key: detection_figures(inside, scores_of(answers)) for key, answers in outside.items()}
    return Row(kind=kind, name=name, weight=weight, outside=figures)


def _fixed_sum(name: str, info: ScoreInfo, predictions: Predictions) -> Array:
    """z(part) + 0.1 · z(middle), by the means and deviations of the validation images."""
    total: Array = np.zeros(len(predictions.score))
    for part, share in zip(name.split("+"), (1.0, MIDDLE_SHARE), strict=True):
        number = info.parts.index(part)
        standard = (predictions.parts[part].astype(np.float64) - info.means[number]) / info.deviations[number]
        total = total + share * standard
    return total


def _knn_row(trained: Trained) -> Row:
    """k = 50 among all training images, as the literature has it: too large to be served, so no part."""
    train = trained.read("training images for KNN", trained.splits.train)
    detector = fit_knn(torch.from_numpy(train.features))

    def scores_of(name: str, images: ImageSet) -> Array:
        return knn(detector, trained.readings_of(name, images).as_tensors().features)

    inside = scores_of("test", trained.splits.test)
    figures = {
        name: detection_figures(inside, scores_of(f"outside {name}", images))
        for name, images in trained.outside_sets().items()
    }
    return Row(kind="posthoc", name="knn", outside=figures)
