"""Familiar images that a gate is to be calibrated on: what the engine says of each, which were left out and why."""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.manifest import MAX_CALIBRATION_ROWS, Manifest
from portcullis.bundle.outputs import Outputs
from portcullis.bundle.preprocess import Pixels, decode
from portcullis.bundle.recalibration import Answers
from portcullis.errors import InvalidParameter, ServiceError

BATCH_IMAGES = 32

Run = Callable[[NDArray[np.uint8]], Outputs]
"""The engine on one batch."""


@dataclass(frozen=True)
class Picture:
    """One image as it came, and what it shows."""

    name: str
    read: Callable[[], bytes]
    label: str | None = None
    """None: nobody says."""


@dataclass(frozen=True)
class Familiar:
    """What became of the pictures."""

    answers: Answers
    left_out: Counter[str]
    """How many, by reason."""


def read_pictures(
    manifest: Manifest, run: Run, pictures: Sequence[Picture], source: str, *, batch_images: int = BATCH_IMAGES
) -> Familiar:
    """Put all through the engine; a broken one is left out, and one of a label that is none. `source` is for people."""
    digest, outputs, labels = hashlib.sha256(), [], []
    left_out: Counter[str] = Counter()
    if len(pictures) > MAX_CALIBRATION_ROWS:  # beyond, no row of each is kept: by class and right99 would be lost
        left_out["not drawn: a bundle keeps no more"] = len(pictures) - MAX_CALIBRATION_ROWS
        pictures = random.Random(0).sample(pictures, MAX_CALIBRATION_ROWS)
    for start in range(0, len(pictures), batch_images):
        images = []
        for picture in pictures[start : start + batch_images]:
            try:
                image, content_digest = _decoded(picture, manifest)
            except _LeftOut as reason:
                left_out[str(reason)] += 1
                continue
            images.append(image)
            labels.append(picture.label)
            digest.update(content_digest)
        if images:
            outputs.append(run(np.stack(images)))
    if not outputs:
        example = f"; left out: {next(iter(left_out))}" if left_out else ""
        raise InvalidParameter(f"found no familiar image in {source}{example}")
    known = _class_indices(labels, manifest)
    return Familiar(Answers(_together(outputs), known, digest.hexdigest(), source), left_out)


class _LeftOut(Exception):
    """Why a picture does not count."""


def _decoded(picture: Picture, manifest: Manifest) -> tuple[Pixels, bytes]:
    if picture.label is not None and picture.label not in manifest.labels:
        raise _LeftOut(f"{picture.label[:60]!r} is none of the bundle's labels")
    try:
        content = picture.read()
        return decode(content, manifest.image), hashlib.sha256(content).digest()
    except ServiceError as error:  # broken, too large, or gone from the queue just now
        raise _LeftOut(f"{picture.name[-60:]}: {error}") from None
    except OSError as error:  # a link to nowhere, or somebody else's
        raise _LeftOut(f"{picture.name[-60:]}: {error.strerror or 'cannot be read'}") from None


def _class_indices(labels: Sequence[str | None], manifest: Manifest) -> NDArray[np.int64] | None:
    """True classes, where every picture has a label."""
    known = [manifest.labels.index(label) for label in labels if label is not None]
    return np.array(known, np.int64) if len(known) == len(labels) else None


def _together(outputs: Sequence[Outputs]) -> Outputs:
    columns = ("probabilities", "scores", "parts")
    return Outputs(*(np.concatenate([getattr(one, name) for one in outputs]) for name in columns))
