"""How a trained run answers, image by image: what is mistaken, strange or of doubtful label, and how classes fare."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from portcullis.bundle.gate import DEFAULT_OPERATING_POINT
from portcullis_training.data import ImageSet
from portcullis_training.measuring import class_figures
from portcullis_training.measuring.calibration import Calibration, load_calibration
from portcullis_training.measuring.class_figures import ClassFigures
from portcullis_training.measuring.evaluation import predict_of
from portcullis_training.measuring.held_out import PartFigures, part_figures
from portcullis_training.measuring.label_doubts import Doubt, find_doubts
from portcullis_training.measuring.metrics import Indices
from portcullis_training.measuring.predictions import Predictions
from portcullis_training.measuring.trained import Trained, open_trained
from portcullis_training.runs.directory import Run


@dataclass(frozen=True, eq=False)
class Answers:
    """Of one calibrated run."""

    trained: Trained
    calibration: Calibration
    test: Predictions
    parts: Sequence[PartFigures]
    doubts: Sequence[Doubt]

    @property
    def labels(self) -> Indices:
        """Of the test images."""
        return self.trained.splits.test.labels

    @property
    def class_names(self) -> tuple[str, ...]:
        """By class index."""
        return self.trained.splits.class_names

    @cached_property
    def answered(self) -> Indices:
        """The class that each test image is answered with."""
        found: Indices = self.test.probabilities.argmax(axis=1)
        return found

    @property
    def threshold(self) -> float | None:
        """Of the default operating point, where there is one."""
        return _threshold(self.calibration)

    @cached_property
    def by_class(self) -> tuple[ClassFigures, ...]:
        """How each class fares."""
        train_labels = self.trained.splits.train.labels
        return class_figures.class_figures(self.test, self.labels, train_labels, self.class_names, self.threshold)

    @cached_property
    def mistakes(self) -> Indices:
        """Wrong answers among the test images, the most certain first."""
        wrong = np.flatnonzero(self.answered != self.labels)
        order = np.argsort(-self.test.probabilities.max(axis=1)[wrong], kind="stable")
        return wrong[order]

    @cached_property
    def strangest(self) -> Indices:
        """The test images by the score of the gate, the least familiar first."""
        return np.argsort(self.test.score, kind="stable")

    def part_of(self, doubt: Doubt) -> ImageSet:
        """The images among which a doubtful label is."""
        part: ImageSet = getattr(self.trained.splits, doubt.part)
        return part


def answers_of(run: Run) -> Answers:
    """Let a calibrated run answer its test images, and look for labels that it doubts."""
    trained = open_trained(run)
    calibration = load_calibration(trained)
    predict = predict_of(trained, calibration)
    parts = part_figures(trained, predict, _threshold(calibration))
    return Answers(trained, calibration, predict("test", trained.splits.test), parts, find_doubts(trained))


def _threshold(calibration: Calibration) -> float | None:
    points = {point.name: point.threshold for point in calibration.operating_points}
    return points.get(DEFAULT_OPERATING_POINT)
