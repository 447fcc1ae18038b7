"""`evaluate`: measure a run, or a bundle as it is served, on test and out-of-distribution (OOD) images."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portcullis.bundle.files import MANIFEST_FILE
from portcullis_training.commands.flags import add_cost, add_outside, open_against
from portcullis_training.commands.parser import Say, add
from portcullis_training.errors import ConfigError
from portcullis_training.runs import atomic
from portcullis_training.runs.directory import Run

if TYPE_CHECKING:
    from portcullis_training.measuring.evaluation import Evaluation

EXAMPLES = """\
examples:
  portcullis-train {command} runs/digits
  portcullis-train {command} models/cifar10-whitened/4 --data npz:train.npz,test.npz --figures figures.json
A bundle needs no run, but the images that it was made of: its recipe says which of them are its test images. What is
measured is what its graph serves, so scores that are not part of it are not there.
"""


def add_command(commands: Any) -> None:
    text = "measure a run, or a bundle as it is served, on test and out-of-distribution (OOD) images"
    command = add(commands, "evaluate", _evaluate, text, EXAMPLES)
    command.add_argument(
        "directory", type=Path, metavar="RUN|BUNDLE", help="such as runs/digits, or models/pets/2 to measure a bundle"
    )
    command.add_argument("--data", metavar="SPEC", help="of a bundle: where the images are that it was made of")
    command.add_argument("--figures", type=Path, metavar="FILE", help="of a bundle: where its figures (JSON) go")
    add_outside(command)
    add_cost(command)


def _evaluate(namespace: argparse.Namespace, say: Say) -> None:
    if (namespace.directory / MANIFEST_FILE).exists():
        _evaluate_bundle(namespace, say)
        return
    if namespace.data is not None or namespace.figures is not None:
        raise ConfigError("--data and --figures are of a bundle; a run knows its images, and keeps its figures itself")
    from portcullis_training.fitting.ensemble import method_of

    run = open_against(namespace.directory, namespace.outside)
    evaluate_run(run, namespace.cost, say)
    if method_of(run.config).export_refusal is None:
        say(f"next: portcullis-train export {namespace.directory}")


def evaluate_run(run: Run, time_cost: bool, say: Say) -> None:
    """Measure, and say the figures."""
    from portcullis_training.fitting.ensemble import method_of
    from portcullis_training.measuring.evaluation import evaluate

    _say_figures(evaluate(run, time_cost=time_cost), method_of(run.config).score_name, say)


def _evaluate_bundle(namespace: argparse.Namespace, say: Say) -> None:
    from portcullis.bundle.files import load_bundle
    from portcullis_training.measuring.served import evaluate_bundle

    outside = None if namespace.outside is None else namespace.outside.split()
    if namespace.figures is not None:
        _refuse_no_place(namespace.figures)
    bundle = load_bundle(namespace.directory)
    evaluation = evaluate_bundle(bundle, namespace.data, outside)
    _say_figures(evaluation, bundle.manifest.method.score, say)
    if namespace.figures is not None:
        atomic.write_text(namespace.figures, evaluation.model_dump_json(indent=1) + "\n")
        say(f"written: {namespace.figures}")


def _refuse_no_place(file: Path) -> None:
    """Before minutes of measuring."""
    if file.is_dir() or not file.parent.is_dir():
        raise ConfigError(f"--figures: expected a file in a directory that exists, got {file}")


def _say_figures(evaluation: Evaluation, own: str, say: Say) -> None:
    """With the method's own score in brackets, where another one gates."""
    from portcullis_training.exporting.report import score_title

    inside = evaluation.inside
    say(f"evaluated: accuracy {inside.accuracy:.2%}, ECE {inside.ece:.4f} on {inside.num_images} test images")
    for name, figures in evaluation.outside.items():
        detection = figures.by_score[evaluation.shipped_score]
        beside = figures.by_score.get(own) if own != evaluation.shipped_score else None
        in_brackets = "" if beside is None else f" ({score_title(own)} {beside.auroc_inside_positive:.4f})"
        say(f"  out-of-distribution {name:<20} AUROC {detection.auroc_inside_positive:.4f}{in_brackets}, "
            f"TNR@TPR95 {detection.tnr_at_tpr95_inside_positive:.4f} (in-distribution positive)")  # fmt: skip
