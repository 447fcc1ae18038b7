"""`python -m bench.temperatures BUNDLE --data SPEC`: what of a bundle's calibration error is its temperature's.

The bundle's own graph answers the images that it was made of. From validation and calibration images a few are drawn
again and again; a temperature is fitted to them by likelihood, and one by the lowest calibration error, as the paper
has it. Both are judged by the calibration error of the rest. Beside that: how right the answers are in each split, and
the calibration error of the test images as served, by the likelihood of the validation images, and if all were true.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize

from bench.__main__ import RESULTS
from portcullis.bundle.files import Bundle, load_bundle
from portcullis_training.commands import host
from portcullis_training.measuring import served, temperature
from portcullis_training.measuring.metrics import Array, Indices, accuracy, expected_calibration_error
from portcullis_training.measuring.predictions import Predictions
from portcullis_training.measuring.temperature import by_likelihood, probabilities_at

SIZES = (250, 500, 1000, 2500)
NUM_DRAWS = 25
NUM_CHANCES = 100
HELD_OUT = ("validation", "calibration")
NUM_GRID_POINTS, NUM_STARTS = 61, 5
GRADIENT_STEP = 1e-3
"""In log T: wide enough to see past a single stair."""
LEAST_PROBABILITY = 1e-38
Fit = Callable[[Array, Indices], float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.temperatures", description=__doc__)
    parser.add_argument("bundle", type=Path, help="such as models/cifar10-whitened/4")
    parser.add_argument("--data", required=True, metavar="SPEC", help="the images that it was made of")
    parser.add_argument("--train", action="store_true", help="how right it is on training images too: there are many")
    parser.add_argument("--out", type=Path, default=RESULTS / "temperatures.json")
    arguments = parser.parse_args()
    host.settle()
    bundle = load_bundle(arguments.bundle)
    kept = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    kept[bundle.label] = figures(bundle, arguments.data, (*HELD_OUT, "test", *(["train"] if arguments.train else [])))
    arguments.out.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    print("\n".join([table(kept), "", described(bundle.label, kept[bundle.label])]))


def figures(bundle: Bundle, where: str, names: Sequence[str]) -> dict[str, Any]:
    """All that is kept of one bundle."""
    config = served.recipe_of(bundle, where)
    splits, predict = served.splits_of(bundle, config), served.predict_of(bundle, config)
    answers = {name: logits_of(predict(name, getattr(splits, name)), bundle.manifest.temperature) for name in names}
    labels = {name: getattr(splits, name).labels for name in names}
    held_out = [np.concatenate([by_split[name] for name in HELD_OUT]) for by_split in (answers, labels)]
    fitted = by_likelihood(answers["validation"], labels["validation"])
    served_probabilities = probabilities_at(answers["test"], bundle.manifest.temperature)
    by_chance = errors_by_chance(served_probabilities)
    return {
        "accuracy": {name: accuracy(answers[name], labels[name]) for name in names},
        "test": {
            "as served": expected_calibration_error(served_probabilities, labels["test"]),
            "by likelihood": expected_calibration_error(probabilities_at(answers["test"], fitted), labels["test"]),
            "if all were true": float(np.mean(by_chance)),
            "if all were true, deviation": float(np.std(by_chance, ddof=1)),
        },
        "temperature by likelihood over that served": fitted / bundle.manifest.temperature,
        "draws": compare(*held_out),
    }


def logits_of(predictions: Predictions, fitted: float) -> Array:
    """Of what is served, but for a constant of each image, which no temperature needs."""
    return fitted * np.log(np.maximum(predictions.probabilities.astype(np.float64), LEAST_PROBABILITY))


def errors_by_chance(probabilities: Array) -> list[float]:
    """Calibration errors of images that are answered so, were every probability true."""
    random = np.random.default_rng(0)
    cumulative = probabilities.cumsum(axis=1)
    drawn = ((random.random((len(probabilities), 1)) > cumulative).sum(axis=1) for _ in range(NUM_CHANCES))
    return [expected_calibration_error(probabilities, labels.clip(max=probabilities.shape[1] - 1)) for labels in drawn]


def compare(logits: Array, labels: Indices) -> dict[str, dict[str, list[float]]]:
    """Calibration errors of the images that were not drawn, one a draw; by how many were drawn, then by rule."""
    return {
        str(size): {name: list(errors(fit, logits, labels, size)) for name, fit in RULES.items()}
        for size in SIZES
        if 2 * size <= len(labels)
    }


def errors(fit: Fit, logits: Array, labels: Indices, size: int) -> Iterator[float]:
    """Of each draw; the draws are the same for every rule."""
    random = np.random.default_rng(size)
    for _ in range(NUM_DRAWS):
        order = random.permutation(len(labels))
        drawn, rest = order[:size], order[size:]
        fitted = fit(logits[drawn], labels[drawn])
        yield expected_calibration_error(probabilities_at(logits[rest], fitted), labels[rest])


def by_calibration_error(logits: Array, labels: Indices) -> float:
    """The lowest stair that is found: a grid, then L-BFGS-B with a numeric gradient from T = 1 and the best of it."""

    def objective(log_temperature: Array) -> float:
        probabilities = probabilities_at(logits, float(np.exp(log_temperature[0])))
        return expected_calibration_error(probabilities, labels)

    def descended(start: float) -> float:
        found = optimize.minimize(objective, [start], method="L-BFGS-B", bounds=[bounds], options=options)
        return float(found.x[0])  # the line search mostly ends abnormally here; the point is judged by its error

    bounds, options = (np.log(temperature.LOWEST), np.log(temperature.HIGHEST)), {"eps": GRADIENT_STEP}
    grid = np.linspace(*bounds, NUM_GRID_POINTS)
    on_grid = np.array([objective(np.array([point])) for point in grid])
    starts = [0.0, *grid[np.argsort(on_grid)[:NUM_STARTS]]]
    found = [*map(descended, starts), *starts]
    return float(np.exp(min(found, key=lambda point: objective(np.array([point])))))


RULES: dict[str, Fit] = {"likelihood": by_likelihood, "lowest error": by_calibration_error}


def table(kept: dict[str, dict[str, Any]]) -> str:
    """A row a bundle and number of images: mean and deviation over the draws of each rule."""
    rows = [f"| bundle | fitted on | {' | '.join(RULES)} |", "| --- | --- |" + " --- |" * len(RULES)]
    for label, figures in kept.items():
        for size, by_rule in figures["draws"].items():
            cells = (f"{np.mean(by_rule[name]):.4f} ± {np.std(by_rule[name], ddof=1):.4f}" for name in RULES)
            rows.append(f"| {label} | {size} | {' | '.join(cells)} |")
    return "\n".join(rows)


def described(label: str, figures: dict[str, Any]) -> str:
    """One bundle's other figures."""
    shares = ", ".join(f"{name} {share:.1%}" for name, share in figures["accuracy"].items())
    errors = ", ".join(f"{name} {error:.4f}" for name, error in figures["test"].items())
    return f"{label}: rightly answered: {shares}; calibration error of the test images: {errors}"


if __name__ == "__main__":
    main()
