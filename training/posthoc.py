"""Post-hoc scores on a trained SoftMax classifier: Energy, MaxLogit and KNN, by the library pytorch-ood.

Its scores point the other way (higher is stranger); all leave here negated, so that higher is more familiar.
"""

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from training import atomic, torchvision_ops
from training.data import ImageSet, to_float
from training.evaluate import DetectionFigures, detection_figures
from training.metrics import Array
from training.predictions import in_batches
from training.trained import Trained

torchvision_ops.ensure_torchvision()  # pytorch-ood imports it

from pytorch_ood.detector import KNN, EnergyBased, MaxLogit  # noqa: E402

NUM_NEIGHBOURS = 50
"""The choice of the KNN paper for CIFAR-10; features are normalised."""

Figures = dict[str, dict[str, DetectionFigures]]
"""By outside set and score."""


class PostHoc(BaseModel):
    """What posthoc.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkpoint: str
    outside: Figures


def evaluate_posthoc(trained: Trained) -> Figures:
    """Detection figures of every post-hoc score for every outside set, kept in the run's posthoc.json."""
    path = trained.run.directory / "posthoc.json"
    if path.is_file():
        try:
            kept = PostHoc.model_validate_json(path.read_bytes())
        except ValidationError:
            kept = None  # of an older version
        if kept is not None and kept.checkpoint == trained.digest and set(kept.outside) == set(trained.outside_sets()):
            return kept.outside
    figures = _measure(trained)
    atomic.write_text(path, PostHoc(checkpoint=trained.digest, outside=figures).model_dump_json(indent=1) + "\n")
    return figures


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
    detector = fit_knn(_features_of(trained, "train", trained.splits.train))
    inside = _scores(trained, detector, "test", trained.splits.test)
    figures: Figures = {}
    for name, images in trained.outside_sets().items():
        outside = _scores(trained, detector, f"outside {name}", images)
        figures[name] = {score: detection_figures(inside[score], outside[score]) for score in inside}
    return figures


def _scores(trained: Trained, detector: KNN, name: str, images: ImageSet) -> dict[str, Array]:
    logits = torch.from_numpy(trained.logits_of(name, images))
    features = _features_of(trained, name, images)
    return {"energy": energy(logits), "posthoc_max_logit": max_logit(logits), "knn": knn(detector, features)}


@torch.inference_mode()
def _features_of(trained: Trained, name: str, images: ImageSet) -> Tensor:
    batches = in_batches(f"features of {name}", images, trained.run.config.num_workers)
    return torch.cat(
        [trained.classifier.features(to_float(batch.to(trained.device))).float().cpu() for batch in batches]
    )


def _familiarity(outlier_scores: Tensor) -> Array:
    familiarity: Array = -outlier_scores.numpy()
    return familiarity
