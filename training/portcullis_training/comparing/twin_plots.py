"""Plots of twins: of each one mean logits, scores and reliability, of all together risk against coverage."""

from collections.abc import Mapping

from portcullis_training.exporting import plots
from portcullis_training.exporting.report import score_title
from portcullis_training.measuring.calibration import load_calibration
from portcullis_training.measuring.evaluation import predict_of
from portcullis_training.measuring.metrics import RiskCoverage, risk_coverage
from portcullis_training.measuring.predictions import Predictions
from portcullis_training.measuring.temperature import probabilities_at
from portcullis_training.measuring.trained import open_trained
from portcullis_training.runs.directory import Run


def plots_of(runs: Mapping[str, Run]) -> dict[str, bytes]:
    """PNG files by name, of one run of each method by its title."""
    files: dict[str, bytes] = {}
    curves: dict[str, RiskCoverage] = {}
    for title, run in runs.items():
        trained = open_trained(run)  # one at a time: each holds all of its images
        predict = predict_of(trained, load_calibration(trained))
        inside = predict("test", trained.splits.test)
        outside = {name: predict(f"outside {name}", images) for name, images in trained.outside_sets().items()}
        key = trained.run.config.name
        files |= _histograms(key, title, inside, outside)
        labels = trained.splits.test.labels
        assert inside.logits is not None
        before = probabilities_at(inside.logits, 1.0)
        files[f"plots/{key}-reliability-before.png"] = plots.reliability_diagram(before, labels, f"{title}, T = 1")
        files[f"plots/{key}-reliability.png"] = plots.reliability_diagram(
            inside.probabilities, labels, f"{title}, calibrated"
        )
        is_correct = inside.probabilities.argmax(axis=1) == labels
        curves[f"{title}, by probability"] = risk_coverage(inside.probabilities.max(axis=1), is_correct)
    return {"plots/risk-coverage.png": plots.risk_coverage_curves(curves, "test images"), **files}


def _histograms(key: str, title: str, inside: Predictions, outside: Mapping[str, Predictions]) -> dict[str, bytes]:
    return {
        f"plots/{key}-mean-logits.png": plots.score_histograms(
            inside.mean_logits, {name: answers.mean_logits for name, answers in outside.items()}, "mean logit",
            f"{title}: mean logit in- and out-of-distribution",
        ),
        f"plots/{key}-scores.png": plots.score_histograms(
            inside.score, {name: answers.score for name, answers in outside.items()},
            f"{score_title(inside.shipped_score)}, higher is more familiar",
            f"{title}: score in- and out-of-distribution",
        ),
    }  # fmt: skip
