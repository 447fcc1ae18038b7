"""Encode images by a backbone that stays as it is: each is decoded and sent through it once, and remembered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from portcullis.bundle.manifest import ImageSpec
from portcullis_training import data
from portcullis_training.data.progress import bar
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.fitting.encoder_session import Session, encoder_session
from portcullis_training.fitting.feature_store import Encoded, FeatureStore
from portcullis_training.fitting.memory import Portions

BATCH_SIZE = 32
METHOD = 1  # another number where the same weights would be used to other effect


def encoder_digest(classifier: Classifier, spec: ImageSpec) -> str:
    """sha256 of everything that features depend on, beside the image: weights, normalisation, geometry."""
    digest = hashlib.sha256(json.dumps([METHOD, spec.model_dump()], sort_keys=True).encode())
    tensors = {**classifier.backbone.state_dict(), "mean": classifier.mean, "std": classifier.std}
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


class Encoder:
    """The backbone of a classifier, as a function from images to features that does not do anything twice.

    Features of a backbone that several runs share, as it came, are in the user's cache; those of one that a run has
    trained are in `own_directory`.
    """

    def __init__(
        self,
        classifier: Classifier,
        spec: ImageSpec,
        device: torch.device,
        num_workers: int,
        own_directory: Path | None = None,
    ) -> None:
        self._classifier, self._spec, self._device, self._num_workers = classifier, spec, device, num_workers
        digest = encoder_digest(classifier, spec)
        shared = FeatureStore(digest)
        self.store = shared if own_directory is None or shared.exists else FeatureStore(digest, own_directory)

    def encode(self, sets: Sequence[data.ImageSet]) -> list[Encoded]:
        """Features and middle of every set; images that are not in the store are encoded now, under one bar."""
        digests = [images.digests() for images in sets]
        missing = self.store.missing(digest for one in digests for digest in one)
        if missing:
            self._encode(sets, digests, missing)
        return [self.store.read(own) for own in digests]

    def encode_once(self, images: data.ImageSet, name: str) -> Encoded:
        """Features and middle of images that nobody will ask for again, under a bar of that name; nothing is kept."""
        portions, rows = Portions(BATCH_SIZE), []
        with bar(len(images), name) as progress:
            for pixels, _ in data.in_order(images, BATCH_SIZE, self._num_workers):
                rows.append(portions.run(self._session, pixels))  # (B, d + m)
                progress.update(len(pixels))
        return self._apart(torch.cat(rows))

    @cached_property
    def _session(self) -> Session:
        return encoder_session(self._classifier, self._spec, self._device)

    def _apart(self, rows: Tensor) -> Encoded:
        num_features = self._classifier.backbone.num_features
        return Encoded(rows[:, :num_features], rows[:, num_features:].contiguous())

    def _encode(self, sets: Sequence[data.ImageSet], digests: list[list[str]], missing: set[str]) -> None:
        portions = Portions(BATCH_SIZE)
        with bar(len(missing), "encoding") as progress:
            for images, own in zip(sets, digests, strict=True):
                for names, pixels in self._batches(images, own, missing):
                    rows: Tensor = portions.run(self._session, pixels)  # (B, d + m)
                    self.store.add(names, self._apart(rows))
                    missing.difference_update(names)
                    progress.update(len(names))

    def _batches(
        self, images: data.ImageSet, digests: list[str], missing: set[str]
    ) -> Iterator[tuple[list[str], Tensor]]:
        first = {digest: index for index, digest in reversed(list(enumerate(digests))) if digest in missing}
        positions = np.array(sorted(first.values()), dtype=np.int64)
        waiting = np.array_split(positions, range(BATCH_SIZE, len(positions), BATCH_SIZE)) if len(positions) else []
        read = images.batches(waiting, self._num_workers)
        for batch, (pixels, _) in zip(waiting, read, strict=True):
            yield [digests[index] for index in batch], pixels
