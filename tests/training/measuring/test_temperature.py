"""The temperature: found where it is known, never worse than none, never at a bound."""

import numpy as np
import pytest
from scipy import special

from portcullis_training.measuring.metrics import expected_calibration_error
from portcullis_training.measuring.temperature import CalibrationError, fit_temperature, probabilities_at


def calibrated_logits(
    seed: int, num_images: int = 2000, num_classes: int = 5, spread: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose softmax is the true class distribution of the labels: their temperature is 1."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(scale=spread, size=(num_images, num_classes))
    cumulative = special.softmax(logits, axis=1).cumsum(axis=1)
    labels = (generator.random((num_images, 1)) > cumulative).sum(axis=1)
    return logits, labels.clip(max=num_classes - 1)


@pytest.mark.parametrize("true_temperature", [0.05, 0.4, 3.0])
def test_a_known_temperature_is_found(true_temperature: float) -> None:
    logits, labels = calibrated_logits(seed=0)
    fit = fit_temperature(logits * true_temperature, labels)
    assert fit.temperature == pytest.approx(true_temperature, rel=0.1)
    assert fit.ece_after < 0.03 < fit.ece_before


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_images", [30, 200])
def test_calibration_is_never_worse_than_no_temperature(seed: int, num_images: int) -> None:
    generator = np.random.default_rng(seed)
    logits, labels = calibrated_logits(seed, num_images)
    scaled = logits * np.exp(generator.uniform(-1, 1))
    fit = fit_temperature(scaled, labels)
    assert fit.ece_after <= fit.ece_before
    assert fit.ece_before == pytest.approx(expected_calibration_error(probabilities_at(scaled, 1.0), labels))
    assert fit.ece_after == pytest.approx(expected_calibration_error(probabilities_at(scaled, fit.temperature), labels))


def test_logits_close_together_get_a_temperature_far_below_1() -> None:
    """As DisMax's are, since the entropic scale is gone at inference."""
    logits, labels = calibrated_logits(seed=3)
    fit = fit_temperature(logits * 0.02, labels)
    assert fit.ece_after < 0.1 * fit.ece_before


def test_a_small_split_gives_nearly_the_temperature_of_a_large_one() -> None:
    """250 images of which 93 % are answered rightly. Their lowest calibration error would be found at 0.5 to 1.3."""
    generator = np.random.default_rng(0)
    logits, labels = calibrated_logits(seed=11, num_images=20_000, spread=12.0)
    found = []
    for _ in range(10):
        drawn = generator.choice(len(labels), 250, replace=False)
        found.append(fit_temperature(0.1 * logits[drawn], labels[drawn]).temperature / 0.1)
    assert min(found) > 0.7 and max(found) < 1.4


def test_an_answer_at_the_bound_is_an_error() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(500, 4)) * 1000  # certain, and no better than guessing
    labels = generator.integers(0, 4, 500)
    with pytest.raises(CalibrationError, match="at the bound"):
        fit_temperature(logits, labels)


def test_logits_too_close_together_are_an_error() -> None:
    logits, labels = calibrated_logits(seed=0, spread=5.0)
    with pytest.raises(CalibrationError, match="at the bound"):
        fit_temperature(logits * 1e-6, labels)


def test_right_answers_alone_give_the_probability_of_the_rule_of_succession() -> None:
    labels = np.arange(98) % 3
    logits = np.eye(3)[labels] * np.linspace(0.1, 0.2, 98)[:, None]
    fit = fit_temperature(logits, labels)
    assert fit.fitted_by == "succession"
    assert probabilities_at(logits, fit.temperature).max(axis=1).mean() == pytest.approx(99 / 100)


def test_right_and_certain_answers_keep_their_temperature() -> None:
    labels = np.arange(98) % 3
    fit = fit_temperature(np.eye(3)[labels] * 50, labels)
    assert (fit.temperature, fit.fitted_by) == (1.0, "one")
