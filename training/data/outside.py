"""Outside sets: any other data spec, and strangers that need no data at all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image

from service.bundle import ImageSpec
from service.preprocess import Pixels, fit
from training.data.folder import read_strangers
from training.data.image_set import ArrayImages, ImageSet, as_array
from training.data.specs import read_arrays, to_spec
from training.data.splits import Splits
from training.errors import DataError
from training.recipes import RunConfig

NUM_MADE = 2000
NUM_PATCHES_PER_SIDE = 4
SMOOTH_CELLS = 4  # a coarse grid of this many cells a side, enlarged: blobs without detail


def load_outside(spec: str, config: RunConfig, splits: Splits) -> ImageSet:
    """The outside set of a spec in the geometry of the inside images; all labels are 0 and mean nothing."""
    if spec in MAKERS:
        images = MAKERS[spec](np.random.default_rng(config.seed), splits)
        return ArrayImages(images, np.zeros(len(images), dtype=np.int64))
    kind, _, location = spec.partition(":")
    if kind == "noise":
        raise DataError(f"unknown outside set {spec!r}; expected one of {', '.join(MAKERS)}, or a data spec")
    if kind == "folder" and location:
        return read_strangers(location, splits.image_spec, config)
    source = read_arrays(spec)
    return to_spec(source.train if source.test is None else source.test, splits.image_spec)


def _uniform_noise(random: np.random.Generator, splits: Splits) -> Pixels:
    return random.integers(0, 256, (NUM_MADE, splits.image_spec.height, splits.image_spec.width, 3), dtype=np.uint8)


def _smooth_noise(random: np.random.Generator, splits: Splits) -> Pixels:
    cells = random.integers(0, 256, (NUM_MADE, SMOOTH_CELLS, SMOOTH_CELLS, 3), dtype=np.uint8)
    spec = ImageSpec(height=splits.image_spec.height, width=splits.image_spec.width, interpolation="bicubic")
    return np.stack([fit(Image.fromarray(cell), spec) for cell in cells])


def _constant(random: np.random.Generator, splits: Splits) -> Pixels:
    colours = random.integers(0, 256, (NUM_MADE, 1, 1, 3), dtype=np.uint8)
    return np.broadcast_to(colours, (NUM_MADE, splits.image_spec.height, splits.image_spec.width, 3)).copy()


def _shuffled(random: np.random.Generator, splits: Splits) -> Pixels:
    """Inside test images cut into a grid of patches that are put back in another order: right colours, no object."""
    chosen = random.permutation(len(splits.test))[:NUM_MADE]
    return np.stack([_shuffle_patches(image, random) for image in as_array(splits.test.subset(np.sort(chosen)))])


def _shuffle_patches(image: Pixels, random: np.random.Generator) -> Pixels:
    num_sides = NUM_PATCHES_PER_SIDE
    height, width = image.shape[0] // num_sides, image.shape[1] // num_sides
    shuffled = image.copy()  # a remainder at the right and bottom edges stays in place
    places = [(row * height, column * width) for row in range(num_sides) for column in range(num_sides)]
    for (row, column), source in zip(places, random.permutation(len(places)), strict=True):
        from_row, from_column = places[source]
        patch = image[from_row : from_row + height, from_column : from_column + width]
        shuffled[row : row + height, column : column + width] = patch
    return shuffled


MAKERS: dict[str, Callable[[np.random.Generator, Splits], Pixels]] = {
    "noise:uniform": _uniform_noise,
    "noise:smooth": _smooth_noise,
    "constant": _constant,
    "shuffled": _shuffled,
}
