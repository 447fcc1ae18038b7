"""Labels that are probably wrong, by confident learning (Northcutt, Jiang, Chuang 2021, arXiv 1911.00068).

A label is in doubt where an image's probability of another class is at least as high as that of the images which bear
this other label are on average. Only probabilities of a head that has not seen the image tell; so heads are
trained on all images but a fifth, on the features of a backbone that knew no label, and asked about that fifth.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from portcullis_training import data
from portcullis_training.fitting import checkpoint, frozen
from portcullis_training.fitting.encoding import Encoder
from portcullis_training.fitting.frozen_head import train_head
from portcullis_training.measuring.metrics import Array, Indices
from portcullis_training.measuring.temperature import fit_temperature, probabilities_at
from portcullis_training.measuring.trained import Trained
from portcullis_training.methods.formulas.centring import CentredHead

NUM_FOLDS = 5
NEVER_LEFT_OUT = -1
PARTS = ("train", "validation", "calibration", "test")


@dataclass(frozen=True)
class Doubt:
    """One image whose label is probably wrong."""

    part: str
    index: int
    """Its position in that part."""
    label: int
    suggested: int
    probability: float
    """Of the suggested class, from a head that has not seen the image."""
    label_probability: float


def find_doubts(trained: Trained) -> list[Doubt]:
    """The most doubtful first, of all images where a run began frozen, otherwise of those held out from training."""
    is_frozen = trained.run.config.frozen
    parts = PARTS if is_frozen else PARTS[1:]
    images: list[data.ImageSet] = [getattr(trained.splits, part) for part in parts]
    labels = np.concatenate([one.labels for one in images])
    logits = _left_out_logits(trained, images, labels) if is_frozen else _own_logits(trained, parts, images)
    is_known = np.isfinite(logits).all(axis=1)
    temperature = fit_temperature(logits[is_known], labels[is_known]).temperature
    places = [(part, index) for part, one in zip(parts, images, strict=True) for index in range(len(one))]
    known = np.flatnonzero(is_known)
    rows = doubtful(probabilities_at(logits[known], temperature), labels[known])
    return [_doubt(places[known[row.index]], row) for row in rows]


@dataclass(frozen=True)
class DoubtfulRow:
    """One row of a table of probabilities whose label is in doubt."""

    index: int
    label: int
    suggested: int
    probability: float
    label_probability: float


def doubtful(probabilities: Array, labels: Indices) -> list[DoubtfulRow]:
    """Rows (N, C) whose label is in doubt, the largest gap between suggestion and label first."""
    rows = np.arange(len(labels))
    own = probabilities[rows, labels]
    counts = np.bincount(labels, minlength=probabilities.shape[1])
    means = np.bincount(labels, weights=own, minlength=probabilities.shape[1]) / np.maximum(counts, 1)
    usual = np.where(counts > 0, means, np.inf)
    confident = np.where(probabilities >= usual, probabilities, 0.0)
    suggested = confident.argmax(axis=1)
    chosen = np.flatnonzero(
        (confident.max(axis=1) > 0) & (suggested != labels) & (probabilities[rows, suggested] > own)
    )
    found = [
        DoubtfulRow(
            index, int(labels[index]), int(suggested[index]), float(probabilities[index, suggested[index]]),
            float(own[index]),
        )
        for index in chosen.tolist()
    ]  # fmt: skip
    return sorted(found, key=lambda row: row.label_probability - row.probability)


def folds(labels: Indices, seed: int) -> Indices:
    """A fold for each image, every class spread over all; the only image of a class is never left out."""
    assigned = np.full(len(labels), NEVER_LEFT_OUT)
    random = np.random.default_rng([seed, NUM_FOLDS])
    for label in np.unique(labels):
        own = random.permutation(np.flatnonzero(labels == label))
        if len(own) > 1:
            assigned[own] = np.arange(len(own)) % NUM_FOLDS
    return assigned


def _left_out_logits(trained: Trained, images: Sequence[data.ImageSet], labels: Indices) -> Array:
    """(N, C), each row by a head that was trained without it; NaN where there is none."""
    run, device = trained.run, trained.device
    classifier = checkpoint.load_classifier(run.at(frozen.STAGE)).to(device)
    encoder = Encoder(classifier, trained.splits.image_spec, device, run.config.num_workers)
    features = torch.cat([part.features for part in encoder.encode(images)]).to(device)
    truth = torch.from_numpy(labels).to(device)
    assigned = torch.from_numpy(folds(labels, run.config.seed)).to(device)
    logits = torch.full((len(labels), trained.splits.num_classes), torch.nan)
    for fold in range(NUM_FOLDS):
        left_out = assigned == fold
        if not left_out.any():
            continue
        head = _fresh_head(trained, features.shape[1]).to(device)
        train_head(head, trained.method, features[~left_out], truth[~left_out], seed=run.config.seed)
        with torch.inference_mode():
            logits[left_out.cpu()] = head(features[left_out]).float().cpu()
    return logits.numpy()


def _fresh_head(trained: Trained, num_features: int) -> CentredHead:
    """One that has seen no image; not even the head that is kept, which has seen them all."""
    torch.manual_seed(trained.run.config.seed)
    return CentredHead(trained.method.make_head(num_features, trained.splits.num_classes), num_features)


def _own_logits(trained: Trained, parts: Sequence[str], images: Sequence[data.ImageSet]) -> Array:
    return np.concatenate([trained.readings_of(part, one).logits for part, one in zip(parts, images, strict=True)])


def _doubt(place: tuple[str, int], row: DoubtfulRow) -> Doubt:
    return Doubt(*place, row.label, row.suggested, row.probability, row.label_probability)
