"""Parity: the served graph answers as torch does, on real and on extreme images, at every batch size tried."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from portcullis.bundle import shift
from portcullis.bundle.manifest import CalibrationScores, ImageSpec, ScoreInfo
from portcullis.bundle.outputs import Outputs
from portcullis.bundle.preprocess import Pixels
from portcullis_training.errors import TrainingError
from portcullis_training.graph.served import ServedClassifier

BATCH_SIZES = (1, 2, 7, 64)
TOLERANCE = 1e-4  # of a probability, and of the size of what a score adds up
PART_TOLERANCE = 1e-3  # of a part's own size
MEASURED_TOLERANCE = 0.02  # of a probability; that of a score comes from the spread of the calibration scores


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


def check_parity(
    run: Callable[[Pixels], Outputs], served: ServedClassifier, images: Pixels, calibration: CalibrationScores
) -> float:
    """The largest difference, as a share of what was rounded; more than is tolerated of it is an error."""
    largest = 0.0
    for batch in _batches(images):
        largest = max(largest, _difference(run(batch), torch_outputs(served, batch), served.score.info, calibration))
    return largest


def check_measured(got: Outputs, measured: Outputs, score: ScoreInfo, calibration: CalibrationScores) -> None:
    """The graph answers what evaluation and the gate were measured on; looser, for a GPU may have measured it.

    A score may differ by as much as the service's own self-test lets a device differ: the gate's promise stands.
    """
    for name, difference, tolerance in (
        ("probabilities", _largest(got.probabilities, measured.probabilities), MEASURED_TOLERANCE),
        ("scores", _largest_score(got.scores, measured.scores, calibration), shift.tolerated(calibration)),
        ("parts", _largest_part(got.parts, measured.parts, score), MEASURED_TOLERANCE),
    ):
        if difference > tolerance:
            raise ParityError(
                f"expected the {name} that the run was evaluated with within {tolerance:.2g}, got others, up to "
                f"{difference:.2g} apart; nothing was written"
            )


@torch.inference_mode()
def torch_outputs(served: ServedClassifier, images: Pixels) -> Outputs:
    """What the torch module answers, in the engine's terms."""
    return Outputs(*(output.numpy() for output in served(torch.from_numpy(images))))


def _batches(images: Pixels) -> Iterator[Pixels]:
    """All images in batches of each size, repeated from the start where there are fewer than a batch."""
    for size in BATCH_SIZES:
        repeated = np.resize(images, (max(len(images), size), *images.shape[1:]))
        for start in range(0, len(repeated) - size + 1, size):
            yield repeated[start : start + size]


def _difference(got: Outputs, expected: Outputs, score: ScoreInfo, calibration: CalibrationScores) -> float:
    batch_size = len(expected.scores)
    sizes = _score_sizes(expected, score)
    shares = {
        "probability": (_largest(got.probabilities, expected.probabilities), TOLERANCE),
        "score's terms": (_largest(got.scores / sizes, expected.scores / sizes), TOLERANCE),
        "part": (_largest_part(got.parts, expected.parts, score), PART_TOLERANCE),
    }
    promise = {"score": (_largest_score(got.scores, expected.scores, calibration), shift.tolerated(calibration))}
    for name, (difference, tolerance) in (shares | promise).items():
        if difference > tolerance:
            raise ParityError(
                f"expected the graph to answer as torch within {tolerance:.2g}, got a difference of {difference:.2g} "
                f"in a {name} in a batch of {batch_size}; nothing was written"
            )
    rows = np.arange(batch_size)
    chosen, wanted = got.probabilities.argmax(axis=1), expected.probabilities.argmax(axis=1)
    # Where two classes tie within the tolerance either may come first.
    gaps = expected.probabilities[rows, wanted] - expected.probabilities[rows, chosen]
    if (gaps > TOLERANCE).any():
        raise ParityError(f"the graph answers another class than torch in a batch of {batch_size}; nothing was written")
    return max(difference for difference, _ in shares.values())


def _score_sizes(outputs: Outputs, score: ScoreInfo) -> np.ndarray:
    """What the terms of each score come to: a float is rounded by its size, not by what is left of it.

    A part that hardly differs between familiar images, as any does of a network that has learnt little, is divided by
    its small deviation, and its last digit with it.
    """
    deviations = np.array(score.deviations)
    return (np.abs(outputs.parts) + deviations) / deviations @ np.array(score.weights)


def _largest_score(got: np.ndarray, expected: np.ndarray, calibration: CalibrationScores) -> float:
    """By what it means among familiar images; one of an extreme image is large, and rounded accordingly."""
    if not np.isfinite(_largest(got, expected)):
        return float("inf")
    differences = np.abs(got.astype(np.float64) - expected).tolist()
    return max(map(shift.near_the_threshold, differences, expected.tolist(), [calibration] * len(expected)))


def _largest_part(got: np.ndarray, expected: np.ndarray, score: ScoreInfo) -> float:
    """As a share of the part's size and of its deviation among familiar images."""
    sizes = np.abs(expected) + np.array(score.deviations)
    return _largest(got / sizes, expected / sizes)


def _largest(got: np.ndarray, expected: np.ndarray) -> float:
    """Infinite where anything is missing or not finite: NaN would compare as no difference at all."""
    if got.shape != expected.shape or not np.isfinite(got).all() or not np.isfinite(expected).all():
        return float("inf")
    return float(np.abs(got - expected).max())
