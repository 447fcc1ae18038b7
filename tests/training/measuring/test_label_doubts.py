"""Doubtful labels: by hand, and that no head is asked about an image that it has seen."""

import numpy as np
import pytest

from portcullis_training.measuring.label_doubts import NEVER_LEFT_OUT, NUM_FOLDS, doubtful, folds


def test_a_label_is_in_doubt_where_another_class_is_as_probable_as_it_usually_is_for_its_own():
    probabilities = np.array([
        [0.9, 0.1],  # cat
        [0.7, 0.3],  # cat; cats have 0.55 on average
        [0.05, 0.95],  # labelled cat, as probable a dog as dogs are
        [0.2, 0.8],  # dog
        [0.4, 0.6],  # dog; dogs have 0.7 on average
    ])  # fmt: skip
    labels = np.array([0, 0, 0, 1, 1])
    (row,) = doubtful(probabilities, labels)
    assert (row.index, row.label, row.suggested) == (2, 0, 1)
    assert (row.probability, row.label_probability) == pytest.approx((0.95, 0.05))


def test_the_clearest_doubt_comes_first_and_a_class_without_images_is_never_suggested():
    probabilities = np.array([[0.4, 0.6, 0.0], [0.1, 0.9, 0.0], [0.0, 0.5, 0.5], [0.9, 0.1, 0.0]])
    found = doubtful(probabilities, np.array([0, 0, 1, 0]))
    assert [row.index for row in found] == [1, 0]
    assert {row.suggested for row in found} == {1}


def test_every_fold_leaves_images_of_every_class_to_learn_from():
    labels = np.array([0] * 7 + [1] * 2 + [2])
    assigned = folds(labels, seed=0)
    assert assigned[9] == NEVER_LEFT_OUT
    assert set(assigned[:7]) == set(range(NUM_FOLDS))
    for fold in range(NUM_FOLDS):
        assert set(labels[assigned != fold]) == {0, 1, 2}
