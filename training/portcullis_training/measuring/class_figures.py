"""How each class fares on test images: how many are answered rightly, for what they are taken, who is turned away."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from portcullis_training.measuring.metrics import Indices
from portcullis_training.measuring.predictions import Predictions


@dataclass(frozen=True)
class ClassFigures:
    """Of the test images of one class, whatever they are answered with."""

    label: str
    num_train: int
    """Images of the class that the weights were trained on."""
    num_test: int
    num_right: int
    num_turned_away: int | None
    """Rejected by the gate; none where it has no operating point."""
    mistaken_for: str | None
    """What most of the wrong answers say; none where there are none."""

    @property
    def trouble(self) -> float:
        """How much there is to gain from more images: the share turned away and the share answered wrongly.

        One image is added to either side, so that one of two does not weigh more than nine of twenty.
        """
        num_wrong = self.num_test - self.num_right
        return ((self.num_turned_away or 0) + num_wrong + 1) / (self.num_test + 2)


def confusion(answered: Indices, labels: Indices, num_classes: int) -> Indices:
    """How many images of each class (row) are answered with each class (column)."""
    return np.bincount(labels * num_classes + answered, minlength=num_classes**2).reshape(num_classes, num_classes)


def class_figures(
    test: Predictions,
    labels: Indices,
    train_labels: Indices,
    class_names: Sequence[str],
    threshold: float | None,
) -> tuple[ClassFigures, ...]:
    """By class index. `threshold`: of the gate on the shipped score, none where there is no operating point."""
    counts = confusion(test.probabilities.argmax(axis=1), labels, len(class_names))
    is_rejected = np.zeros(len(labels), dtype=bool) if threshold is None else test.score < threshold
    num_train = np.bincount(train_labels, minlength=len(class_names))
    return tuple(
        ClassFigures(
            label=name,
            num_train=int(num_train[index]),
            num_test=int(counts[index].sum()),
            num_right=int(counts[index, index]),
            num_turned_away=None if threshold is None else int(is_rejected[labels == index].sum()),
            mistaken_for=_mistaken_for(counts[index], index, class_names),
        )
        for index, name in enumerate(class_names)
    )


def to_photograph_next(figures: Sequence[ClassFigures], at_most: int) -> list[ClassFigures]:
    """The classes that more images would help most, those first of which the gate turns most away or errs in most."""
    troubled = [one for one in figures if one.num_turned_away or one.num_right < one.num_test]
    return sorted(troubled, key=lambda one: (-one.trouble, one.num_train))[:at_most]


def _mistaken_for(row: Indices, own: int, class_names: Sequence[str]) -> str | None:
    others = row.copy()
    others[own] = 0
    return class_names[int(others.argmax())] if others.any() else None
