"""Outside sets: any other data spec, and strangers that need no data at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.preprocess import Pixels, fit
from portcullis_training.config import RunConfig
from portcullis_training.data.folder import read_strangers, refuse_without_images
from portcullis_training.data.image_set import ArrayImages, ImageSet, as_array
from portcullis_training.data.laid_out import folder_of
from portcullis_training.data.specs import read_arrays, reader_of, to_spec
from portcullis_training.data.splits import Splits
from portcullis_training.data.strangers import shuffle_patches
from portcullis_training.errors import DataError

FILE_KINDS = ("folder", "idx", "npz")
NUM_MADE = 2000
FEWEST_MADE, PIXELS_MADE = 400, 20_000_000
"""Large images are made in smaller numbers: of 224 pixels 400, which tell an AUROC to two digits."""
NUM_PATCHES_PER_SIDE = 4
SMOOTH_CELLS = 4  # a coarse grid of this many cells a side, enlarged: blobs without detail


def outside_specs(specs: Sequence[str]) -> dict[str, str]:
    """Data specs by their short names; refused where two have the same, or what they name is unknown or not there."""
    named: dict[str, str] = {}
    for spec in specs:
        name, (kind, _, location) = short_name(spec), spec.removeprefix("grey:").partition(":")
        if name in named:
            raise DataError(f"two outside sets are called {name!r}; rename one of the files or folders")
        if kind in FILE_KINDS and (missing := [path for path in location.split(",") if not Path(path).exists()]):
            raise DataError(f"outside set {spec}: {missing[0] or 'a path'} is not there")
        _refuse_unknown(spec)
        named[name] = spec
    return named


def _refuse_unknown(spec: str) -> None:
    if spec.startswith("noise:") and spec not in MAKERS:
        raise DataError(f"unknown outside set {spec!r}; expected one of {', '.join(MAKERS)}, or a data spec")
    if spec in MAKERS:
        return
    if folder := _folder(spec):
        refuse_without_images(folder)
    else:
        reader_of(spec)


def _folder(spec: str) -> str | None:
    """That of a spec whose images are files."""
    kind, _, location = spec.partition(":")
    return location if kind == "folder" else folder_of(spec, is_outside=True)


def short_name(spec: str) -> str:
    """A data spec without the directories of this machine: `npz:/data/svhn_test.npz` is svhn_test."""
    kind, _, location = spec.partition(":")
    if kind == "grey":
        return f"grey:{short_name(location)}"
    if kind not in FILE_KINDS:
        return spec
    return location.split(",")[-1].rstrip("/").rsplit("/", 1)[-1].removesuffix(".npz")


def load_outside(spec: str, config: RunConfig, splits: Splits) -> ImageSet:
    """The outside set of a spec in the geometry of the inside images; all labels are 0 and mean nothing."""
    if spec in MAKERS:
        images = MAKERS[spec](np.random.default_rng(config.seed), splits)
        return ArrayImages(images, np.zeros(len(images), dtype=np.int64))
    _refuse_unknown(spec)
    if folder := _folder(spec):
        return read_strangers(folder, splits.image_spec, config)
    source = read_arrays(spec)
    return to_spec(source.train if source.test is None else source.test, splits.image_spec)


def num_made(spec: ImageSpec) -> int:
    """How many images a made set has."""
    return min(NUM_MADE, max(FEWEST_MADE, PIXELS_MADE // (spec.height * spec.width)))


def _uniform_noise(random: np.random.Generator, splits: Splits) -> Pixels:
    spec = splits.image_spec
    return random.integers(0, 256, (num_made(spec), spec.height, spec.width, 3), dtype=np.uint8)


def _smooth_noise(random: np.random.Generator, splits: Splits) -> Pixels:
    cells = random.integers(0, 256, (num_made(splits.image_spec), SMOOTH_CELLS, SMOOTH_CELLS, 3), dtype=np.uint8)
    spec = ImageSpec(height=splits.image_spec.height, width=splits.image_spec.width, interpolation="bicubic")
    return np.stack([fit(Image.fromarray(cell), spec) for cell in cells])


def _constant(random: np.random.Generator, splits: Splits) -> Pixels:
    spec = splits.image_spec
    colours = random.integers(0, 256, (num_made(spec), 1, 1, 3), dtype=np.uint8)
    return np.broadcast_to(colours, (num_made(spec), spec.height, spec.width, 3)).copy()


def _shuffled(random: np.random.Generator, splits: Splits) -> Pixels:
    """Inside test images cut into a grid of patches that are put back in another order: right colours, no object."""
    chosen = random.permutation(len(splits.test))[: num_made(splits.image_spec)]
    images = as_array(splits.test.subset(np.sort(chosen)))
    return np.stack([shuffle_patches(image, NUM_PATCHES_PER_SIDE, random) for image in images])


MAKERS: dict[str, Callable[[np.random.Generator, Splits], Pixels]] = {
    "noise:uniform": _uniform_noise,
    "noise:smooth": _smooth_noise,
    "constant": _constant,
    "shuffled": _shuffled,
}
