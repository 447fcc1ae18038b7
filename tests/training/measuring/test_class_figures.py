"""Class by class: counts by hand, and which classes more photos would help."""

import numpy as np

from portcullis_training.measuring.class_figures import ClassFigures, class_figures, confusion, to_photograph_next
from portcullis_training.measuring.predictions import Predictions

NAMES = ("cat", "dog", "fox")


def predictions(answered, scores):
    probabilities = np.full((len(answered), len(NAMES)), 0.1)
    probabilities[np.arange(len(answered)), answered] = 0.8
    return Predictions(probabilities, {"mmles": np.array(scores)}, "mmles", {})


def test_confusion_by_hand():
    counts = confusion(np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1]), 3)
    assert counts.tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]


def test_a_class_counts_its_own_test_images_whatever_they_are_answered_with():
    test = predictions(answered=[0, 1, 1, 1, 2], scores=[3.0, 1.0, 3.0, 0.5, 3.0])
    labels, train_labels = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 2])
    cat, dog, fox = class_figures(test, labels, train_labels, NAMES, threshold=1.0)
    assert cat == ClassFigures("cat", 2, 3, 1, 0, "dog")
    assert dog == ClassFigures("dog", 1, 2, 1, 1, "fox")
    assert fox == ClassFigures("fox", 1, 0, 0, 0, None)


def test_without_an_operating_point_nobody_is_turned_away_nor_counted_so():
    (cat, *_) = class_figures(predictions([0], [1.0]), np.array([0]), np.array([0]), NAMES, threshold=None)
    assert cat.num_turned_away is None


def test_classes_in_trouble_come_first_and_those_without_stay_out():
    fine = ClassFigures("fine", 50, 20, 20, 0, None)
    rejected = ClassFigures("rejected", 50, 20, 20, 9, None)
    mistaken = ClassFigures("mistaken", 50, 20, 14, 0, "fine")
    one_of_two = ClassFigures("one of two", 5, 2, 2, 1, None)
    assert to_photograph_next([fine, mistaken, rejected], 5) == [rejected, mistaken]
    assert to_photograph_next([rejected, one_of_two, mistaken], 2) == [one_of_two, rejected]
    assert to_photograph_next([fine], 5) == []
