"""What a bundle promises about answers that pass, proven on calibration images and measured on test images.

The arithmetic is the service's own (`portcullis.bundle.promises`); here it is published and checked. All of it is about
familiar images: strangers that the gate lets through are in no share below.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.gate import DEFAULT_OPERATING_POINT, Gate
from portcullis.bundle.grammar import BY_CLASS
from portcullis.bundle.manifest import Manifest, RightPoint
from portcullis.bundle.promises import Promises
from portcullis.errors import UnknownOperatingPoint
from portcullis_training.measuring.metrics import Array, Indices
from portcullis_training.measuring.predictions import Predictions

Flags = NDArray[np.bool_]
GATES = ("", DEFAULT_OPERATING_POINT)
"""Behind which a promise to be right is published: alone, and together with the default operating point."""


@dataclass(frozen=True)
class TurnedAway:
    """Shares of the test images answered with one class that are rejected as strangers."""

    label: str
    num_images: int
    overall: float
    """By one threshold for all classes."""
    by_class: float | None
    """By the class's own; none where the calibration images cannot promise it by class."""


def with_promises(manifest: Manifest, test: Predictions, labels: Indices) -> Manifest:
    """The same manifest with every promise to be right that its calibration images prove, measured on test images."""
    if manifest.calibration_rows is None:
        return manifest
    promises = Promises(manifest)
    is_right: Flags = test.probabilities.argmax(axis=1) == labels
    points = []
    for name in GATES:
        for point in promises.right_points(name):
            chosen = promises.gate(f"{name}+{point.name}" if name else point.name)
            points.append(_measured(point, passes(chosen, test), is_right))
    return manifest.model_copy(update={"promises": tuple(points)})


def passes(gate: Gate, test: Predictions) -> Flags:
    """Which images a gate on the shipped score accepts; (N,) of bool."""
    is_familiar = test.score >= _thresholds(gate, test)
    accepted: Flags = is_familiar & (test.probabilities.max(axis=1) >= gate.min_probability)
    return accepted


def turned_away(manifest: Manifest, test: Predictions, point: str = DEFAULT_OPERATING_POINT) -> list[TurnedAway]:
    """Class by class, how many familiar test images an operating point rejects, with one threshold and by class."""
    promises, answered = Promises(manifest), test.probabilities.argmax(axis=1)
    try:
        overall = ~passes(promises.gate(point), test)
    except UnknownOperatingPoint:
        return []
    try:
        own = ~passes(promises.gate(f"{point}:{BY_CLASS}"), test)
    except UnknownOperatingPoint:
        own = None
    shares = []
    for index, label in enumerate(manifest.labels):
        chosen = answered == index
        if chosen.any():
            by_class = None if own is None else float(own[chosen].mean())
            shares.append(TurnedAway(label, int(chosen.sum()), float(overall[chosen].mean()), by_class))
    return shares


def _thresholds(gate: Gate, test: Predictions) -> Array:
    num_classes = test.probabilities.shape[1]
    thresholds = np.array([gate.threshold_for(index) for index in range(num_classes)])
    found: Array = thresholds[test.probabilities.argmax(axis=1)]
    return found


def _measured(point: RightPoint, accepted: Flags, is_right: Flags) -> RightPoint:
    error = float((~is_right[accepted]).mean()) if accepted.any() else None
    return point.model_copy(update={"test_coverage": float(accepted.mean()), "test_error": error})
