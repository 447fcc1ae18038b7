"""Predictions: what a torch classifier or a served bundle answers for a set of images, in one shape for both."""

import hashlib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from service.engine import Engine
from training import atomic
from training.classifier import Classifier
from training.data import ImageSet, in_order, to_float
from training.methods import Method
from training.metrics import Array
from training.temperature import probabilities_at

BATCH_SIZE = 250
CALIBRATED = "_calibrated"
"""Suffix of a score computed on L / T; without it, on L."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Answers for N images, row by row."""

    probabilities: Array  # (N, C), calibrated
    scores: dict[str, Array]  # by name, (N,) each; higher is more familiar
    shipped_score: str
    """Which of the scores the gate compares with its threshold."""
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


LogitsOf = Callable[[str, ImageSet], Array]
"""Logits (N, C) of a named set of images."""


class Predict(Protocol):
    """Answers for a named set of images."""

    def __call__(self, name: str, images: ImageSet) -> Predictions: ...


def of_engine(engine: Engine, score_name: str, num_workers: int = 0) -> Predict:
    """Predictions of a served bundle, by the service's own engine."""

    def predict(name: str, images: ImageSet) -> Predictions:
        outputs = [engine.run(batch.numpy()) for batch in in_batches(name, images, num_workers)]
        scores = np.concatenate([output.scores for output in outputs])
        probabilities = np.concatenate([output.probabilities for output in outputs])
        return Predictions(probabilities, {score_name: scores}, score_name)

    return predict


def of_logits(logits_of: LogitsOf, method: Method, temperature: float, score_temperature: float) -> Predict:
    """Predictions from a classifier's logits; every score is taken at both temperatures, to be compared."""

    def predict(name: str, images: ImageSet) -> Predictions:
        return from_logits(logits_of(name, images), method, temperature, score_temperature)

    return predict


def from_logits(logits: Array, method: Method, temperature: float, score_temperature: float) -> Predictions:
    """Probabilities at the fitted temperature, all scores at T = 1 and at the fitted one."""
    scores: dict[str, Array] = {}
    for suffix, divisor in (("", 1.0), (CALIBRATED, temperature)):
        named = method.scores(torch.from_numpy(logits) / divisor)
        scores |= {name + suffix: score.numpy() for name, score in named.items()}
    shipped = method.score_name + (CALIBRATED if score_temperature != 1 else "")
    return Predictions(probabilities_at(logits, temperature), scores, shipped, logits)


def logits_of_classifier(classifier: Classifier, device: torch.device, num_workers: int = 0) -> LogitsOf:
    """Logits of a named set by running the classifier; float32 (N, C)."""

    @torch.inference_mode()
    def logits_of(name: str, images: ImageSet) -> Array:
        batches = in_batches(name, images, num_workers)
        return torch.cat([classifier(to_float(batch.to(device))).float().cpu() for batch in batches]).numpy()

    classifier.eval()
    return logits_of


def cached(logits_of: LogitsOf, directory: Path, key: str) -> LogitsOf:
    """The same, kept in `directory` so that a later stage need not run the classifier again.

    `key` names the weights; a file of other weights or other images is computed anew.
    """

    def logits_of_cached(name: str, images: ImageSet) -> Array:
        path = directory / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.npz"
        fingerprint = hashlib.sha256("".join([key, *images.digests()]).encode()).hexdigest()
        stored = _read(path, fingerprint)
        if stored is not None:
            return stored
        logits = logits_of(name, images)
        directory.mkdir(parents=True, exist_ok=True)
        atomic.write(path, lambda stream: _write(stream, logits, fingerprint))
        return logits

    return logits_of_cached


def in_batches(name: str, images: ImageSet, num_workers: int) -> Iterator[Tensor]:
    """uint8 NHWC batches of a named set in order, under a progress bar."""
    with tqdm(total=len(images), desc=name, unit=" images", leave=False) as progress:
        for batch, _ in in_order(images, BATCH_SIZE, num_workers):
            yield batch
            progress.update(len(batch))


def _write(stream: BinaryIO, logits: Array, fingerprint: str) -> None:
    np.savez(stream, logits=logits, fingerprint=np.array(fingerprint))


def _read(path: Path, fingerprint: str) -> Array | None:
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream, np.load(stream) as stored:
            logits: Array = stored["logits"]
            return logits if str(stored["fingerprint"]) == fingerprint else None
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None  # a broken file is no more than one that is not there
