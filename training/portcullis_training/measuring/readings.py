"""Readings: what a trained classifier shows of a set of images, kept so that a later stage need not run it again."""

import hashlib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from portcullis_training.data import FileImages, ImageSet, in_order, to_float
from portcullis_training.data.progress import bar
from portcullis_training.fitting.classifier import Classifier, Reading
from portcullis_training.fitting.encoding import Encoder
from portcullis_training.fitting.memory import Portions
from portcullis_training.fitting.precision import full_precision
from portcullis_training.measuring.metrics import Array
from portcullis_training.methods import LooksTwice, Method
from portcullis_training.methods.formulas.answers import answer_of
from portcullis_training.runs import atomic

BATCH_SIZE = 250


class Readings(NamedTuple):
    """Of N images, float32."""

    logits: Array  # (N, C)
    features: Array  # (N, d)
    middle: Array  # (N, m)
    beside: Array  # (N, k)

    def as_tensors(self) -> Reading:
        """For the modules of the served graph."""
        return Reading(*map(torch.from_numpy, self))


ReadingsOf = Callable[[str, ImageSet], Readings]
"""Readings of a named set of images."""


def of_classifier(
    classifier: Classifier, device: torch.device, num_workers: int = 0, method: Method | None = None
) -> ReadingsOf:
    """Readings of a named set by running the classifier, as its method looks at images."""

    portions = Portions(BATCH_SIZE)
    widths: list[int] = []

    def side_by_side(batch: Tensor) -> Tensor:
        parts = look(classifier, to_float(batch.to(device)), method)
        widths[:] = [part.shape[1] for part in parts]
        return torch.cat([part.cpu() for part in parts], dim=1)

    def readings_of(name: str, images: ImageSet) -> Readings:
        with full_precision():
            rows = torch.cat([portions.run(side_by_side, batch) for batch in in_batches(name, images, num_workers)])
        return Readings(*(part.numpy() for part in rows.split(widths, dim=1)))

    classifier.eval()
    return readings_of


def look(classifier: Classifier, images: Tensor, method: Method | None) -> Reading:
    """What a classifier shows of a batch; a method that looks twice scores a changed image."""
    with torch.inference_mode():
        reading = classifier.read(images)
    if not isinstance(method, LooksTwice):
        return reading
    changed = method.perturbed(classifier, images)  # needs gradients
    with torch.inference_mode():
        return reading._replace(beside=classifier.read(changed).beside)


def of_encoder(classifier: Classifier, encoder: Encoder) -> ReadingsOf:
    """Readings of a named set by the head alone, on features that the encoder remembers, of files at least."""

    @torch.inference_mode()
    def readings_of(name: str, images: ImageSet) -> Readings:
        encoded = encoder.encode([images])[0] if isinstance(images, FileImages) else encoder.encode_once(images, name)
        answer = answer_of(classifier.head, encoded.features.to(classifier.mean.device))
        logits, beside = (column.float().cpu().numpy() for column in answer)
        return Readings(logits, encoded.features.numpy(), encoded.middle.numpy(), beside)

    classifier.eval()
    return readings_of


def cached(readings_of: ReadingsOf, directory: Path, key: str) -> ReadingsOf:
    """The same, kept in `directory`. `key` names the weights; a file of other weights or images is computed anew."""

    def readings_of_cached(name: str, images: ImageSet) -> Readings:
        path = directory / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.npz"
        fingerprint = hashlib.sha256("".join([key, *images.digests()]).encode()).hexdigest()
        stored = _read(path, fingerprint)
        if stored is not None:
            return stored
        readings = readings_of(name, images)
        directory.mkdir(parents=True, exist_ok=True)
        atomic.write(path, lambda stream: _write(stream, readings, fingerprint))
        return readings

    return readings_of_cached


def in_batches(name: str, images: ImageSet, num_workers: int) -> Iterator[Tensor]:
    """uint8 NHWC batches of a named set in order, under a progress bar."""
    with bar(len(images), name) as progress:
        for batch, _ in in_order(images, BATCH_SIZE, num_workers):
            yield batch
            progress.update(len(batch))


def _write(stream: BinaryIO, readings: Readings, fingerprint: str) -> None:
    np.savez(stream, **readings._asdict(), fingerprint=np.array(fingerprint))


def _read(path: Path, fingerprint: str) -> Readings | None:
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream, np.load(stream) as stored:
            readings = Readings(*(stored[name] for name in Readings._fields))
            return readings if str(stored["fingerprint"]) == fingerprint else None
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None  # a broken file is no more than one that is not there
