"""How the splits that were held out fare beside each other: whether the calibration images are like those of the test.

A gate keeps its promise for images like those that it was calibrated on. Where the calibration images come from a
training list that was photographed in series, they are siblings of training images, and those of the test are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from portcullis_training.measuring.predictions import Predict
from portcullis_training.measuring.trained import Trained

PARTS = ("validation", "calibration", "test")
CLEAR = 3.0  # standard errors between two shares, which chance seldom makes


@dataclass(frozen=True)
class PartFigures:
    """Of the images of one split."""

    name: str
    num_images: int
    num_right: int
    num_turned_away: int | None
    """Rejected by the gate; none where it has no operating point."""


def part_figures(trained: Trained, predict: Predict, threshold: float | None) -> tuple[PartFigures, ...]:
    """Of each split that training did not see. `threshold`: of the gate on the shipped score."""
    return tuple(_figures(name, trained, predict, threshold) for name in PARTS)


def are_siblings(parts: Sequence[PartFigures]) -> bool:
    """Whether clearly more calibration than test images are answered rightly: they are nearer to those of training."""
    by_name = {part.name: part for part in parts}
    calibration, test = by_name["calibration"], by_name["test"]
    shares = [part.num_right / part.num_images for part in (calibration, test)]
    pooled = (calibration.num_right + test.num_right) / (calibration.num_images + test.num_images)
    error = (pooled * (1 - pooled) * (1 / calibration.num_images + 1 / test.num_images)) ** 0.5
    return shares[0] - shares[1] > CLEAR * error


def _figures(name: str, trained: Trained, predict: Predict, threshold: float | None) -> PartFigures:
    images = getattr(trained.splits, name)
    predictions = predict(name, images)
    return PartFigures(
        name=name,
        num_images=len(images),
        num_right=int((predictions.probabilities.argmax(axis=1) == images.labels).sum()),
        num_turned_away=None if threshold is None else int((predictions.score < threshold).sum()),
    )
