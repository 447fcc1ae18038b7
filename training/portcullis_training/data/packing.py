"""Writes the images of any data spec as one npz file, which `npz:` reads back to the same images."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.preprocess import Pixels
from portcullis_training.config import make_config
from portcullis_training.data.image_set import ArrayImages, FileImages, ImageSet, as_array
from portcullis_training.data.specs import read_source, to_spec
from portcullis_training.errors import DataError
from portcullis_training.runs import atomic

Part = Literal["train", "test"]


@dataclass(frozen=True)
class Packed:
    """What a file holds; the digest tells whether two people have the same pixels in the same order."""

    shape: tuple[int, ...]
    num_classes: int
    pixels_sha256: str


def pack(spec: str, part: Part, geometry: ImageSpec | None, output: Path) -> Packed:
    """Write one part of a spec's images, with labels and class names; `geometry` None: as they are, a folder at 224."""
    if output.suffix != ".npz":
        raise DataError(f"{output}: expected a file name that ends in .npz")
    config = make_config({"data": spec})
    source = read_source(spec, config)
    chosen = source.train if part == "train" else source.test
    if chosen is None:
        raise DataError(f"{spec}: has no test images of its own; without --part its only images are written")
    images = _one_channel_if_grey(as_array(_brought_to(geometry, chosen), num_workers=config.num_workers))
    output.parent.mkdir(parents=True, exist_ok=True)
    names = np.array(source.class_names)
    atomic.write(output, lambda file: np.savez(file, images=images, labels=chosen.labels, class_names=names))
    return Packed(images.shape, len(names), hashlib.sha256(np.ascontiguousarray(images).tobytes()).hexdigest())


def _brought_to(geometry: ImageSpec | None, images: ImageSet) -> ImageSet:
    if geometry is not None and isinstance(images, ArrayImages):
        return to_spec(images, geometry)
    if geometry is not None and isinstance(images, FileImages):
        return replace(images, spec=geometry)
    return images


def _one_channel_if_grey(images: Pixels) -> Pixels:
    """A third of the bytes where the channels are equal; reading repeats them."""
    is_grey = bool((images == images[..., :1]).all())
    return images[..., 0] if is_grey else images
