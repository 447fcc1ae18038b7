"""Post-hoc scores on a trained SoftMax classifier: Energy, MaxLogit and KNN, by the library pytorch-ood.

Its scores point the other way (higher is stranger); all leave here negated, so that higher is more familiar.
"""

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from portcullis_training import torchvision_ops
from portcullis_training.data import ImageSet
from portcullis_training.errors import ConfigError
from portcullis_training.measuring.evaluation import DetectionFigures, detection_figures
from portcullis_training.measuring.metrics import Array
from portcullis_training.measuring.trained import Trained
from portcullis_training.runs.artefact import Artefact

torchvision_ops.ensure_torchvision()  # pytorch-ood imports it

from pytorch_ood.detector import KNN, EnergyBased, MaxLogit  # noqa: E402

NUM_NEIGHBOURS = 50
"""The choice of the KNN paper for CIFAR-10; features are normalised."""

Figures = dict[str, dict[str, DetectionFigures]]
"""By outside set and score."""


class PostHoc(BaseModel):
    """What posthoc.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outside: Figures


POSTHOC = Artefact("posthoc.json", PostHoc, "compare")


def evaluate_posthoc(trained: Trained) -> Figures:
    """Detection figures of every post-hoc score for every outside set, kept in the run's posthoc.json."""
    origins = {"weights": trained.digest, "outside sets": " ".join(trained.run.config.outside)}
    try:
        return POSTHOC.read(trained.run, origins).outside
    except ConfigError:  # not yet, or of other weights or sets
        measured = PostHoc(outside=_measure(trained))
    POSTHOC.write(trained.run, measured, origins)
    return measured.outside


def energy(logits: Tensor) -> Array:
    """log Σ_j exp(L_j), Liu et al. 2020."""
    return _familiarity(EnergyBased(None).predict_logits(logits))


def max_logit(logits: Tensor) -> Array:
    """max_j L_j, Hendrycks et al. 2022."""
    return _familiarity(MaxLogit(None).predict_logits(logits))


def fit_knn(features: Tensor) -> KNN:
    """Neighbours among the training images' features; Sun et al. 2022."""
    detector = KNN(None, k=min(NUM_NEIGHBOURS, len(features)), algorithm="brute")
    detector.fit_features(
        features, torch.zeros(len(features), dtype=torch.long)
    )  # any label but a negative one is inside
    return detector


def knn(detector: KNN, features: Tensor) -> Array:
    """Minus the distance to the k-th nearest training image, between normalised features."""
    return _familiarity(detector.predict_features(features))


def _measure(trained: Trained) -> Figures:
    train = trained.read("training images for KNN", trained.splits.train)
    detector = fit_knn(torch.from_numpy(train.features))
    inside = _scores(trained, detector, "test", trained.splits.test)
    figures: Figures = {}
    for name, images in trained.outside_sets().items():
        outside = _scores(trained, detector, f"outside {name}", images)
        figures[name] = {score: detection_figures(inside[score], outside[score]) for score in inside}
    return figures


def _scores(trained: Trained, detector: KNN, name: str, images: ImageSet) -> dict[str, Array]:
    logits, features, *_ = trained.readings_of(name, images).as_tensors()
    return {"energy": energy(logits), "posthoc_max_logit": max_logit(logits), "knn": knn(detector, features)}


def _familiarity(outlier_scores: Tensor) -> Array:
    familiarity: Array = -outlier_scores.numpy()
    return familiarity
