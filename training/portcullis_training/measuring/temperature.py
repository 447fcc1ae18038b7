"""The temperature that divides the logits, fitted on held-out inside images. Knows NumPy and SciPy only.

It is the likelihood's. The 15-bin calibration error, which the paper minimises, is a staircase whose lowest stair moves
with every image: on images that neither saw, the likelihood's temperature has the lower error (`bench.temperatures`).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize, special

from portcullis_training.errors import TrainingError
from portcullis_training.measuring.metrics import (
    Array,
    Indices,
    accuracy,
    expected_calibration_error,
    negative_log_likelihood,
)

LOWEST, HIGHEST = 0.001, 100.0
BOUND_MARGIN = 0.01
"""In log T: an answer this close to a bound is the bound's, not the data's."""

FittedBy = Literal["nll", "succession", "one"]


class CalibrationError(TrainingError):
    """Images held out for the temperature from which none can be fitted."""


@dataclass(frozen=True)
class TemperatureFit:
    """A temperature and what it did to the calibration on the images it was fitted on."""

    temperature: float
    fitted_by: FittedBy
    """nll; succession where every answer was right; one where T = 1 has no greater calibration error."""
    num_images: int
    accuracy: float
    ece_before: float
    ece_after: float
    nll_before: float
    nll_after: float


def probabilities_at(logits: Array, temperature: float) -> Array:
    """softmax(L / T) in float64."""
    probabilities: Array = special.softmax(logits.astype(np.float64) / temperature, axis=1)
    return probabilities


def fit_temperature(logits: Array, labels: Indices) -> TemperatureFit:
    """The temperature of the greatest likelihood; never worse than T = 1, never an answer at a bound."""
    candidates = _candidates(logits, labels)
    best = min(candidates, key=lambda fitted_by: _ece(candidates[fitted_by], logits, labels))
    _refuse_bound(candidates[best], logits, labels)
    return _describe(candidates[best], best, logits, labels)


def unfitted(logits: Array, labels: Indices) -> TemperatureFit:
    """T = 1, described as a fit is; for logits that nothing can be fitted to yet."""
    return _describe(1.0, "one", logits, labels)


def _candidates(logits: Array, labels: Indices) -> dict[FittedBy, float]:
    if accuracy(logits, labels) == 1:
        return {"one": 1.0, "succession": _by_succession(logits, labels)}
    return {"one": 1.0, "nll": by_likelihood(logits, labels)}


def by_likelihood(logits: Array, labels: Indices) -> float:
    """The temperature at which the labels are likeliest; smooth, so that one bounded search finds it."""
    found = optimize.minimize_scalar(
        lambda log_temperature: negative_log_likelihood(probabilities_at(logits, np.exp(log_temperature)), labels),
        bounds=(np.log(LOWEST), np.log(HIGHEST)),
        method="bounded",
    )
    return float(np.exp(found.x))


def _by_succession(logits: Array, labels: Indices) -> float:
    """Where all n answers are right no temperature is low enough for error or likelihood, so take the one at which
    the mean probability is what n successes in a row speak for: (n + 1) / (n + 2), Laplace's rule of succession."""
    target = (len(labels) + 1) / (len(labels) + 2)

    def excess(log_temperature: float) -> float:
        return float(probabilities_at(logits, np.exp(log_temperature)).max(axis=1).mean()) - target

    low, high = np.log(LOWEST), np.log(HIGHEST)
    if excess(low) <= 0:
        return LOWEST
    return HIGHEST if excess(high) >= 0 else float(np.exp(optimize.brentq(excess, low, high)))


def _refuse_bound(temperature: float, logits: Array, labels: Indices) -> None:
    distance = min(np.log(temperature / LOWEST), np.log(HIGHEST / temperature))
    if distance < BOUND_MARGIN:
        raise CalibrationError(
            f"expected a temperature inside {LOWEST} to {HIGHEST}, but the best is {temperature:.4g}, at the bound, on "
            f"{len(labels)} validation images answered with accuracy {accuracy(logits, labels):.1%}: the classifier "
            f"is hardly trained, or the split is too small; train longer or raise validation_size"
        )


def _ece(temperature: float, logits: Array, labels: Indices) -> float:
    return expected_calibration_error(probabilities_at(logits, temperature), labels)


def _describe(temperature: float, fitted_by: FittedBy, logits: Array, labels: Indices) -> TemperatureFit:
    before, after = probabilities_at(logits, 1.0), probabilities_at(logits, temperature)
    return TemperatureFit(
        temperature=temperature,
        fitted_by=fitted_by,
        num_images=len(labels),
        accuracy=accuracy(logits, labels),
        ece_before=expected_calibration_error(before, labels),
        ece_after=expected_calibration_error(after, labels),
        nll_before=negative_log_likelihood(before, labels),
        nll_after=negative_log_likelihood(after, labels),
    )
