"""Strangers made from familiar images: the same pixels, colours or textures, and no object of any class.

A score is fitted against them, so that no outside set has to be seen. uint8 (N, H, W, 3) in and out, lengths relative
to the image, everything drawn from one seed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from portcullis.bundle.preprocess import Pixels

Random = np.random.Generator
Labels = NDArray[np.int64]

BLUR_SHARE = 1 / 16  # deviation of the blur, of the shorter side
NOISE_DEVIATION = 0.25 * 255
CROP_SHARES = (0.2, 0.35)  # sides of the crop that is enlarged, of the image's
MIN_CROP_PIXELS = 4
NUM_CELLS = 8  # a side, where pixels are merged into squares
GRAINS = (0.0, 1 / 112, 1 / 28)  # deviation of the blur of coloured noise, of the shorter side

NUM_SOURCES = 1000
MAX_SOURCE_BYTES = 256 * 1024 * 1024


def num_sources(num_images: int, image_bytes: int) -> int:
    """Of how many of so many images strangers are made, one of each kind."""
    return min(num_images, NUM_SOURCES, max(1, MAX_SOURCE_BYTES // image_bytes))


def make_strangers(kind: str, images: Pixels, labels: Labels, seed: int) -> Pixels:
    """One stranger of a kind for each image; kinds of several images take them from different classes."""
    random = np.random.default_rng([seed, list(KINDS).index(kind)])
    return KINDS[kind](images, labels, random)


def shuffle_patches(image: Pixels, num_sides: int, random: Random) -> Pixels:
    """The image cut into a grid of patches that are put back in another order."""
    height, width = image.shape[0] // num_sides, image.shape[1] // num_sides
    shuffled = image.copy()  # a remainder at the right and bottom edges stays in place
    places = [(row * height, column * width) for row in range(num_sides) for column in range(num_sides)]
    for (row, column), source in zip(places, _another_order(len(places), random), strict=True):
        from_row, from_column = places[source]
        patch = image[from_row : from_row + height, from_column : from_column + width]
        shuffled[row : row + height, column : column + width] = patch
    return shuffled


def _another_order(num: int, random: Random) -> NDArray[np.int64]:
    order = random.permutation(num)
    while num > 1 and (order == np.arange(num)).all():
        order = random.permutation(num)
    return order


def _compound(images: Pixels, labels: Labels, random: Random) -> Pixels:
    """Four quadrants of four images, as in the fractional regulariser."""
    row, column = images.shape[1] // 2, images.shape[2] // 2
    made = images.copy()
    made[:, row:, :column] = images[_partners(labels, random), row:, :column]
    made[:, :row, column:] = images[_partners(labels, random), :row, column:]
    made[:, row:, column:] = images[_partners(labels, random), row:, column:]
    return made


def _mix(images: Pixels, labels: Labels, random: Random) -> Pixels:
    """Two images in one, half and half."""
    sums = images.astype(np.uint16) + images[_partners(labels, random)]
    return (sums // 2).astype(np.uint8)


def _partners(labels: Labels, random: Random) -> NDArray[np.int64]:
    """For each image another one of another class, as far as a few draws find one."""
    chosen = random.permutation(len(labels))
    for _ in range(50):
        is_same = labels[chosen] == labels
        if not is_same.any():
            break
        chosen[is_same] = random.integers(0, len(labels), is_same.sum())
    return chosen


def _blurred(image: Pixels, random: Random) -> NDArray[np.float64]:
    return _smooth(image.astype(np.float64), BLUR_SHARE * min(image.shape[:2]))


def _crop(image: Pixels, random: Random) -> Pixels:
    """A small part, enlarged."""
    height, width = image.shape[:2]
    share = random.uniform(*CROP_SHARES)
    rows, columns = (min(side, max(MIN_CROP_PIXELS, int(share * side))) for side in (height, width))
    top, left = random.integers(0, height - rows + 1), random.integers(0, width - columns + 1)
    part = Image.fromarray(image[top : top + rows, left : left + columns])
    return np.asarray(part.resize((width, height), Image.Resampling.BICUBIC))


def _noisy(image: Pixels, random: Random) -> NDArray[np.float64]:
    return image + NOISE_DEVIATION * random.standard_normal(image.shape)


def _phases(image: Pixels, random: Random) -> NDArray[np.float64]:
    """The same amplitudes at random phases: texture and colours without shapes."""
    spectrum = np.fft.rfft2(image.astype(np.float64), axes=(0, 1))
    phases = np.angle(np.fft.rfft2(random.standard_normal(image.shape[:2])))[..., None]
    return np.fft.irfft2(spectrum * np.exp(1j * phases), s=image.shape[:2], axes=(0, 1))


def _coloured_noise(image: Pixels, random: Random) -> NDArray[np.float64]:
    """Noise of some grain with the colours of the image: their mean and covariance."""
    grain = random.choice(GRAINS) * min(image.shape[:2])
    noise = _smooth(random.standard_normal(image.shape), grain)
    colours = image.reshape(-1, 3).astype(np.float64)
    root = np.linalg.cholesky(np.cov(colours.T) + np.eye(3))
    return colours.mean(axis=0) + noise / (noise.std(axis=(0, 1)) + 1e-9) @ root.T


def _negative(image: Pixels, random: Random) -> Pixels:
    return 255 - image


def _pixelated(image: Pixels, random: Random) -> Pixels:
    cells = Image.fromarray(image).resize((NUM_CELLS, NUM_CELLS), Image.Resampling.BOX)
    return np.asarray(cells.resize((image.shape[1], image.shape[0]), Image.Resampling.NEAREST))


def _edges(image: Pixels, random: Random) -> NDArray[np.float64]:
    """Outlines alone, without colours and surfaces."""
    grey = image.astype(np.float64).mean(axis=2)
    edges = ndimage.gaussian_gradient_magnitude(grey, max(0.5, min(grey.shape) / 224))
    return np.repeat((255 * edges / max(edges.max(), 1e-6))[..., None], 3, axis=2)


def _turned(image: Pixels, random: Random) -> Pixels:
    """By a quarter, a half or three quarters; what is not square by a half."""
    is_square = image.shape[0] == image.shape[1]
    return np.rot90(image, int(random.integers(1, 4)) if is_square else 2)


def _smooth(image: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    smoothed: NDArray[np.float64] = ndimage.gaussian_filter(image, (deviation, deviation, 0))
    return smoothed


Make = Callable[[Pixels, Labels, Random], Pixels]


def _each(make: Callable[[Pixels, Random], NDArray[np.float64] | Pixels]) -> Make:
    """A kind that needs one image at a time."""

    def make_all(images: Pixels, labels: Labels, random: Random) -> Pixels:
        return np.stack([np.clip(make(image, random), 0, 255).astype(np.uint8) for image in images])

    return make_all


KINDS: dict[str, Make] = {
    "patches of a quarter": _each(lambda image, random: shuffle_patches(image, 2, random)),
    "patches of a sixteenth": _each(lambda image, random: shuffle_patches(image, 4, random)),
    "compound": _compound,
    "mixed": _mix,
    "blurred": _each(_blurred),
    "crop": _each(_crop),
    "noisy": _each(_noisy),
    "phases": _each(_phases),
    "coloured noise": _each(_coloured_noise),
    "negative": _each(_negative),
    "pixelated": _each(_pixelated),
    "edges": _each(_edges),
    "turned": _each(_turned),
}
