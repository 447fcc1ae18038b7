"""Spec strings → sources: `digits`, `cifar10`, `folder:PATH`, `idx:PATH`, `npz:TRAIN.npz,TEST.npz`."""

from __future__ import annotations

import dataclasses
import difflib

import numpy as np

from service.bundle import ImageSpec
from service.preprocess import prepare
from training.data.array_files import read_digits, read_idx, read_npz
from training.data.folder import read_folder
from training.data.image_set import ArrayImages, ImageSet
from training.data.named import NAMED, read_named
from training.data.sources import Source
from training.errors import DataError
from training.recipes import RunConfig

KINDS = ("digits", *NAMED, "folder:PATH", "idx:PATH", "npz:TRAIN.npz[,TEST.npz]")


def read_source(spec: str, config: RunConfig) -> Source:
    """The images that a spec names, in the geometry that the config asks for."""
    kind, _, location = spec.partition(":")
    if kind == "folder" and location:
        return read_folder(location, config)
    if kind == "npz" and location:
        source = read_npz(location)
    elif kind == "idx" and location:
        source = read_idx(location)
    elif spec == "digits":
        source = read_digits()
    elif spec in NAMED:
        source = read_named(spec)
    else:
        raise DataError(_unknown(spec))
    return _in_geometry(source, config)


def to_spec(images: ArrayImages, spec: ImageSpec) -> ArrayImages:
    """Every image brought to a geometry by the function that the service uses."""
    if images.images.shape[1:3] == (spec.height, spec.width):
        return images
    return ArrayImages(np.stack([prepare(image, spec) for image in images.images]), images.labels)


def _in_geometry(source: Source, config: RunConfig) -> Source:
    if config.image_size is None:
        return source
    spec = ImageSpec(
        height=config.image_size, width=config.image_size, resize_shorter_side=config.resize_shorter_side
    )

    def resized(images: ImageSet) -> ImageSet:
        return to_spec(images, spec) if isinstance(images, ArrayImages) else images

    test = None if source.test is None else resized(source.test)
    return dataclasses.replace(source, train=resized(source.train), test=test, image_spec=spec)


def _unknown(spec: str) -> str:
    nearest = difflib.get_close_matches(spec, ["digits", *NAMED], n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"unknown data spec {spec!r}; expected one of {', '.join(KINDS)}{hint}"
