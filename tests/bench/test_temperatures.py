"""The rules that `bench.temperatures` sets beside each other, on logits whose temperature is known."""

import numpy as np
import pytest

from bench import temperatures
from bench.temperatures import NUM_DRAWS, RULES, by_calibration_error, errors, errors_by_chance
from portcullis_training.measuring.metrics import expected_calibration_error
from portcullis_training.measuring.temperature import probabilities_at
from tests.training.measuring.test_temperature import calibrated_logits


def test_the_lowest_error_is_no_higher_than_that_of_any_temperature_on_a_fine_grid() -> None:
    logits, labels = calibrated_logits(seed=5, num_images=1000)
    grid = np.exp(np.linspace(np.log(0.01), np.log(50), 400))
    best = min(expected_calibration_error(probabilities_at(logits, temperature), labels) for temperature in grid)
    found = by_calibration_error(logits, labels)
    assert expected_calibration_error(probabilities_at(logits, found), labels) <= best + 1e-3


def test_every_rule_is_judged_on_the_same_images_that_it_was_not_fitted_on() -> None:
    logits, labels = calibrated_logits(seed=11, num_images=400)
    seen: list[tuple[float, ...]] = []

    def fit(some: np.ndarray, labels_of_them: np.ndarray) -> float:
        seen.append((float(some.sum()), len(labels_of_them)))
        return 1.0

    first, second = list(errors(fit, logits, labels, 300)), list(errors(fit, logits, labels, 300))
    assert first == second and len(set(first)) == NUM_DRAWS and {number for _, number in seen} == {300}
    assert seen[:NUM_DRAWS] == seen[NUM_DRAWS:]
    whole = expected_calibration_error(probabilities_at(logits, 1.0), labels)
    assert whole not in first, "judged by the rest alone"


def test_sizes_that_leave_too_few_to_judge_by_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temperatures, "NUM_DRAWS", 2)
    found = temperatures.compare(*calibrated_logits(seed=1, num_images=1100))
    assert set(found) == {"250", "500"} and set(found["250"]) == set(RULES)
    assert len(temperatures.table({"a/1": {"draws": found}}).splitlines()) == 2 + len(found)


def test_true_probabilities_have_an_error_by_chance_that_shrinks_with_the_images() -> None:
    """Of n images the mean of |x| of a normal variable, summed over bins: it falls as the root of n."""
    logits, labels = calibrated_logits(seed=2, num_images=8000)
    probabilities = probabilities_at(logits, 1.0)
    many, few = (np.mean(errors_by_chance(probabilities[:number])) for number in (8000, 2000))
    assert few / many == pytest.approx(2, rel=0.2)
    assert expected_calibration_error(probabilities, labels) == pytest.approx(many, rel=0.6)
