"""`evaluate`: measure a run, or its bundle as served, on test and out-of-distribution (OOD) images."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portcullis_training.commands.flags import add_cost, add_outside, add_run, open_against
from portcullis_training.commands.parser import Say, add
from portcullis_training.runs.directory import Run

if TYPE_CHECKING:
    from portcullis_training.measuring.evaluation import Evaluation


def add_command(commands: Any) -> None:
    text = "measure a run, or its bundle as served, on test and out-of-distribution (OOD) images"
    command = add_run(add(commands, "evaluate", _evaluate, text))
    command.add_argument("--bundle", type=Path, metavar="DIR", help="measure this bundle as the service serves it")
    add_outside(command)
    add_cost(command)


def _evaluate(namespace: argparse.Namespace, say: Say) -> None:
    run = open_against(namespace.run, namespace.outside)
    if namespace.bundle is not None:
        _evaluate_bundle(run, namespace.bundle, say)
        return
    evaluate_run(run, namespace.cost, say)
    say(f"next: portcullis-train export {namespace.run}")


def evaluate_run(run: Run, time_cost: bool, say: Say) -> None:
    """Measure, and say the figures."""
    from portcullis_training.measuring.evaluation import evaluate

    _say_figures(evaluate(run, time_cost=time_cost), say)


def _evaluate_bundle(run: Run, directory: Path, say: Say) -> None:
    from portcullis.bundle.files import load_bundle
    from portcullis_training.measuring.evaluation import evaluate_bundle

    _say_figures(evaluate_bundle(load_bundle(directory), run), say)


def _say_figures(evaluation: Evaluation, say: Say) -> None:
    inside = evaluation.inside
    say(f"evaluated: accuracy {inside.accuracy:.2%}, ECE {inside.ece:.4f} on {inside.num_images} test images")
    for name, figures in evaluation.outside.items():
        detection = figures.by_score[evaluation.shipped_score]
        own = figures.by_score.get("mmles")
        beside = "" if own is None else f" (MMLES {own.auroc_inside_positive:.4f})"
        say(f"  out-of-distribution {name:<20} AUROC {detection.auroc_inside_positive:.4f}{beside}, "
            f"TNR@TPR95 {detection.tnr_at_tpr95_inside_positive:.4f} (in-distribution positive)")  # fmt: skip
