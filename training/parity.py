"""Parity: the served graph answers as torch does, on real and on extreme images, at every batch size tried."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from service.bundle import ImageSpec
from service.engine import Outputs
from service.preprocess import Pixels
from training.errors import TrainingError

BATCH_SIZES = (1, 2, 7, 64)
TOLERANCE = 1e-4
MEASURED_TOLERANCE = 0.02


class ParityError(TrainingError):
    """The exported graph does not compute what was trained; nothing is written."""


def extreme_images(image: ImageSpec) -> Pixels:
    """Black, white, noise, single pixels and stripes: where rounding, clamping and dead units show."""
    random = np.random.default_rng(0)
    black = np.zeros((image.height, image.width, 3), np.uint8)
    dot, hole, rows, columns = black.copy(), np.full_like(black, 255), black.copy(), black.copy()
    dot[image.height // 2, image.width // 2] = 255
    hole[image.height // 2, image.width // 2] = 0
    rows[::2] = 255
    columns[:, ::2] = 255
    red = black.copy()
    red[..., 0] = 255
    noise = random.integers(0, 256, (3, *black.shape), dtype=np.uint8)
    salt = (random.random(black.shape[:2]) < 0.5)[..., None].repeat(3, axis=2).astype(np.uint8) * 255
    return np.stack([black, black + np.uint8(255), dot, hole, rows, columns, red, salt, *noise])


def check_parity(run: Callable[[Pixels], Outputs], served: nn.Module, images: Pixels) -> float:
    """The largest difference of a probability or score; more than the tolerance is an error."""
    largest = 0.0
    for batch in _batches(images):
        largest = max(largest, _difference(run(batch), torch_outputs(served, batch), len(batch)))
    return largest


def check_measured(got: Outputs, measured: Outputs) -> None:
    """The graph answers what evaluation and the gate were measured on; looser, for a GPU may have measured it."""
    for name, ours, theirs in (
        ("probabilities", got.probabilities, measured.probabilities),
        ("scores", got.scores, measured.scores),
    ):
        if not np.allclose(ours, theirs, atol=MEASURED_TOLERANCE, rtol=MEASURED_TOLERANCE):
            raise ParityError(
                f"expected the {name} that the run was evaluated with, got others, up to {_largest(ours, theirs):.2g} "
                "apart; nothing was written"
            )


@torch.inference_mode()
def torch_outputs(served: nn.Module, images: Pixels) -> Outputs:
    """What the torch module answers, in the engine's terms."""
    probabilities, scores = served(torch.from_numpy(images))
    return Outputs(probabilities.numpy(), scores.numpy())


def _batches(images: Pixels) -> Iterator[Pixels]:
    """All images in batches of each size, repeated from the start where there are fewer than a batch."""
    for size in BATCH_SIZES:
        repeated = np.resize(images, (max(len(images), size), *images.shape[1:]))
        for start in range(0, len(repeated) - size + 1, size):
            yield repeated[start : start + size]


def _difference(got: Outputs, expected: Outputs, batch_size: int) -> float:
    largest = max(_largest(got.probabilities, expected.probabilities), _largest(got.scores, expected.scores))
    if largest > TOLERANCE:
        raise ParityError(
            f"expected the graph to answer as torch within {TOLERANCE}, got a difference of {largest:.2g} "
            f"in a batch of {batch_size}; nothing was written"
        )
    rows = np.arange(batch_size)
    chosen, wanted = got.probabilities.argmax(axis=1), expected.probabilities.argmax(axis=1)
    # Where two classes tie within the tolerance either may come first.
    gaps = expected.probabilities[rows, wanted] - expected.probabilities[rows, chosen]
    if (gaps > TOLERANCE).any():
        raise ParityError(f"the graph answers another class than torch in a batch of {batch_size}; nothing was written")
    return largest


def _largest(got: np.ndarray, expected: np.ndarray) -> float:
    """Infinite where anything is missing or not finite: NaN would compare as no difference at all."""
    if got.shape != expected.shape or not np.isfinite(got).all() or not np.isfinite(expected).all():
        return float("inf")
    return float(np.abs(got - expected).max())
