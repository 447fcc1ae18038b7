"""Spec strings → sources: `digits`, `cifar10`, `folder:PATH`, `idx:PATH`, `npz:TRAIN.npz,TEST.npz`, `grey:SPEC`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from PIL import Image

from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.preprocess import prepare
from portcullis_training.config import RunConfig
from portcullis_training.data.array_files import read_digits, read_idx, read_npz
from portcullis_training.data.folder import read_folder
from portcullis_training.data.image_set import ArrayImages
from portcullis_training.data.laid_out import LAYOUTS, folder_of
from portcullis_training.data.named import NAMED, read_named
from portcullis_training.data.sources import ArraySource, Source
from portcullis_training.errors import DataError

KINDS = ("digits", *NAMED, "tinyimagenet", "folder:PATH", "idx:PATH", "npz:TRAIN.npz[,TEST.npz]", "grey:SPEC of arrays")


def read_source(spec: str, config: RunConfig) -> Source:
    """The images that a spec names, in the geometry that the config asks for."""
    kind, _, location = spec.partition(":")
    folder = location if kind == "folder" else folder_of(spec, is_outside=False)
    if folder:
        return read_folder(folder, config)
    source = read_arrays(spec)
    if config.image_size is None:
        return source
    wanted = ImageSpec(
        height=config.image_size, width=config.image_size, resize_shorter_side=config.resize_shorter_side
    )
    test = None if source.test is None else to_spec(source.test, wanted)
    return Source(to_spec(source.train, wanted), test, source.class_names, wanted)


def read_arrays(spec: str) -> ArraySource:
    """The images of a spec that come as arrays, in their own geometry."""
    return reader_of(spec)()


def reader_of(spec: str) -> Callable[[], ArraySource]:
    """What reads a spec of arrays; one that names nothing is refused before anything is read."""
    kind, _, location = spec.partition(":")
    if kind == "npz" and location:
        return partial(read_npz, location)
    if kind == "idx" and location:
        return partial(read_idx, location)
    if kind == "grey" and location:
        coloured = reader_of(location)
        return lambda: _in_grey(coloured())
    if spec == "digits":
        return read_digits
    if spec in NAMED:
        return partial(read_named, spec)
    raise DataError(_unknown(spec))


def to_spec(images: ArrayImages, spec: ImageSpec) -> ArrayImages:
    """Every image brought to a geometry by the function that the service uses."""
    if images.images.shape[1:3] == (spec.height, spec.width) and spec.resize_shorter_side is None:
        return images
    return ArrayImages(np.stack([prepare(image, spec) for image in images.images]), images.labels)


def _in_grey(source: ArraySource) -> ArraySource:
    test = None if source.test is None else _grey(source.test)
    return replace(source, train=_grey(source.train), test=test)


def _grey(images: ArrayImages) -> ArrayImages:
    """Every image by its luminance (ITU-R 601), in three equal channels."""
    num_images, height, width, _ = images.images.shape
    column = Image.fromarray(images.images.reshape(num_images * height, width, 3)).convert("L")
    return replace(images, images=np.asarray(column.convert("RGB")).reshape(num_images, height, width, 3))


def _unknown(spec: str) -> str:
    nearest = difflib.get_close_matches(spec, ["digits", *NAMED, *LAYOUTS], n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"unknown data spec {spec!r}; expected one of {', '.join(KINDS)}{hint}"
