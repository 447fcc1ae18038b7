"""Figures against scikit-learn and torchmetrics, and by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score

from portcullis_training import torchvision_ops
from portcullis_training.measuring import metrics

torchvision_ops.ensure_torchvision()  # torchmetrics imports it

from torchmetrics.functional.classification import multiclass_calibration_error  # noqa: E402


def random_answers(seed: int, num_images: int = 400, num_classes: int = 7) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    logits = generator.normal(scale=2, size=(num_images, num_classes))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.where(generator.random(num_images) < 0.6, logits.argmax(axis=1), generator.integers(0, 7, num_images))
    return probabilities, labels


def random_scores(seed: int, decimals: int) -> tuple[np.ndarray, np.ndarray]:
    """Few decimals make many ties."""
    generator = np.random.default_rng(seed)
    return generator.normal(1, 1, 311).round(decimals), generator.normal(0, 1.5, 173).round(decimals)


@pytest.mark.parametrize("seed", range(5))
def test_ece_agrees_with_torchmetrics(seed: int) -> None:
    probabilities, labels = random_answers(seed)
    expected = multiclass_calibration_error(torch.tensor(probabilities), torch.tensor(labels), 7, n_bins=15)
    assert metrics.expected_calibration_error(probabilities, labels) == pytest.approx(float(expected), abs=1e-6)


def test_ece_by_hand_puts_an_edge_into_the_bin_below() -> None:
    # Two bins: 0.5 lies in (0, 0.5], alone and right; 0.6 and 0.9 share (0.5, 1], one of two right.
    probabilities = np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0], [0.1, 0.9, 0.0]])
    labels = np.array([0, 0, 0])
    assert metrics.expected_calibration_error(probabilities, labels, num_bins=2) == pytest.approx(
        (1 * abs(1 - 0.5) + 2 * abs(0.5 - 0.75)) / 3
    )


def test_a_certain_and_right_answer_has_no_calibration_error() -> None:
    assert metrics.expected_calibration_error(np.eye(4), np.arange(4)) == 0


def test_nll_and_brier_agree_with_scikit_learn() -> None:
    probabilities, labels = random_answers(0)
    expected_nll = log_loss(labels, probabilities, labels=range(7))
    expected_brier = brier_score_loss(labels, probabilities, labels=range(7), scale_by_half=False)
    assert metrics.negative_log_likelihood(probabilities, labels) == pytest.approx(expected_nll, abs=1e-6)
    assert metrics.brier(probabilities, labels) == pytest.approx(expected_brier, abs=1e-6)


def test_nll_of_an_impossible_label_is_large_but_finite() -> None:
    assert 80 < metrics.negative_log_likelihood(np.eye(2), np.array([1, 0])) < 100


def test_accuracy_by_hand() -> None:
    assert metrics.accuracy(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1])) == pytest.approx(2 / 3)


@pytest.mark.parametrize("decimals", [0, 1, 8])
@pytest.mark.parametrize("seed", range(3))
def test_detection_figures_agree_with_scikit_learn(seed: int, decimals: int) -> None:
    inside, outside = random_scores(seed, decimals)
    scores = np.concatenate([inside, outside])
    is_inside = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    assert metrics.auroc(inside, outside) == pytest.approx(roc_auc_score(is_inside, scores))
    assert metrics.aupr_inside_positive(inside, outside) == pytest.approx(average_precision_score(is_inside, scores))
    assert metrics.aupr_outside_positive(inside, outside) == pytest.approx(
        average_precision_score(1 - is_inside, -scores)
    )


def test_tnr_at_tpr95_by_hand() -> None:
    # Of 20 inside scores 0..19 the threshold that keeps 19 is 1; outside scores under it: −1, 0 and 0.5.
    inside, outside = np.arange(20.0), np.array([-1.0, 0.0, 0.5, 1.0, 7.0])
    assert metrics.tnr_at_tpr95(inside, outside) == pytest.approx(3 / 5)


def test_tnr_at_tpr95_never_keeps_less_than_95_percent_of_ties() -> None:
    # 10 % of inside images tie at 0: the threshold may not pass them, so the outside images at 0 stay in.
    inside, outside = np.array([0.0] * 2 + [1.0] * 18), np.array([0.0, -1.0])
    assert metrics.tnr_at_tpr95(inside, outside) == pytest.approx(1 / 2)


def test_risk_coverage_by_hand() -> None:
    confidence = np.array([0.9, 0.8, 0.8, 0.1])
    curve = metrics.risk_coverage(confidence, np.array([True, False, True, False]))
    np.testing.assert_allclose(curve.coverage, [1 / 4, 3 / 4, 1])  # the two at 0.8 are accepted together
    np.testing.assert_allclose(curve.risk, [0, 1 / 3, 2 / 4])
    assert [metrics.risk_at(curve, share) for share in (0.25, 0.3, 0.75, 1.0)] == [0, 1 / 3, 1 / 3, 0.5]
    assert metrics.area_under_risk_coverage(curve) == pytest.approx(0.5 * (1 / 3) + 0.25 * 0.5)


def test_a_nan_score_is_refused() -> None:
    with pytest.raises(ValueError, match="1 of them NaN"):
        metrics.auroc(np.array([1.0, np.nan]), np.array([0.0]))
