"""The command line: run, try, fit, calibrate, evaluate, export, compare, recipes. The only place that prints.

Exit codes: 0 done, 1 an error that the message explains, 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from service.errors import PortcullisError
from training import flags, grammar, host
from training.recipes import RECIPES
from training.runs import Run, create_run, open_run

if TYPE_CHECKING:
    from training.evaluate import Evaluation


def main(arguments: list[str] | None = None) -> int:
    """Run one command; every error that a person can put right is one line."""
    host.settle()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        namespace = flags.parse(grammar.build(COMMANDS), sys.argv[1:] if arguments is None else arguments)
        namespace.command(namespace)
    except PortcullisError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except argparse.ArgumentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"error: the disk is full: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        if _is_main():
            print(f"\ninterrupted{f': {error}' if str(error) else ''}", file=sys.stderr)
        return 130
    return 0


def _fit(namespace: argparse.Namespace) -> None:
    if namespace.resume is not None:
        flags.refuse_overrides(namespace)
        run = open_run(namespace.resume)
    else:
        run = create_run(namespace.runs, flags.config_of(namespace), overwrite=namespace.overwrite)
    _train(run)
    _say(f"next: portcullis-train calibrate {run.directory}")


def _run(namespace: argparse.Namespace) -> None:
    run = create_run(namespace.runs, flags.config_of(namespace), overwrite=namespace.overwrite)
    _train(run)
    if _is_main():
        _calibrate_run(run)
        _evaluate_run(run)
        _export_run(run, namespace.models, namespace.examples)


def _try(namespace: argparse.Namespace) -> None:
    from training.trial import trial

    config = flags.config_of(namespace)
    tried = trial(config, namespace.steps)
    _say(f"{config.name}: {config.backbone}, {tried.num_parameters / 1e6:.2f} M parameters, batch {tried.batch_size}")
    for number, step in enumerate(tried.steps, start=1):
        _say(f"  step {number}: loss {step.loss:.4f}, {step.seconds:.2f} s")
    _say(f"the whole run of {tried.num_run_steps} steps would take {tried.run_seconds / 3600:.1f} hours here")


def _train(run: Run) -> None:
    from training.fit import Interrupted, fit  # torch takes seconds to import; `recipes` and `--help` do without

    is_resumed = run.checkpoint_path.exists()
    _say(f"{'resuming' if is_resumed else 'training'} {run.config.name} in {run.directory}")
    try:
        history = fit(run, resume=is_resumed, show_progress=True)
    except Interrupted:
        raise KeyboardInterrupt(f"saved; go on with: portcullis-train fit --resume {run.directory}") from None
    last = history[-1]
    accuracy = last["validation_accuracy"]
    _say(f"trained {len(history)} epochs: loss {last['loss']:.4f}, accuracy on validation images {accuracy:.2%}")


def _calibrate(namespace: argparse.Namespace) -> None:
    _calibrate_run(open_run(namespace.run))
    _say(f"next: portcullis-train evaluate {namespace.run}")


def _calibrate_run(run: Run) -> None:
    from training.calibrate import calibrate

    calibration = calibrate(run)
    points = ", ".join(f"{point.name} at {point.threshold:.4f}" for point in calibration.operating_points)
    num_images = calibration.scores.num_images
    _say(f"calibrated: temperature {calibration.temperature:.4f}, {calibration.score} of {num_images} images")
    _say(f"  operating points: {points or 'none, for so few images can promise nothing'}")


def _evaluate(namespace: argparse.Namespace) -> None:
    if namespace.bundle is not None:
        _evaluate_bundle(open_run(namespace.run), namespace.bundle)
        return
    _evaluate_run(open_run(namespace.run))
    _say(f"next: portcullis-train export {namespace.run}")


def _evaluate_run(run: Run) -> None:
    from training.evaluate import evaluate

    _say_figures(evaluate(run))


def _evaluate_bundle(run: Run, directory: Path) -> None:
    from service.bundle import load_bundle
    from training.evaluate import evaluate_bundle

    _say_figures(evaluate_bundle(load_bundle(directory), run))


def _say_figures(evaluation: Evaluation) -> None:
    inside = evaluation.inside
    _say(f"evaluated: accuracy {inside.accuracy:.2%}, ECE {inside.ece:.4f} on {inside.num_images} test images")
    for name, figures in evaluation.outside.items():
        detection = figures.by_score[evaluation.shipped_score]
        _say(f"  outside {name:<20} AUROC {detection.auroc_inside_positive:.4f}, "
             f"TNR@TPR95 {detection.tnr_at_tpr95_inside_positive:.4f} (inside positive)")  # fmt: skip


def _export(namespace: argparse.Namespace) -> None:
    _export_run(open_run(namespace.run), namespace.models, namespace.examples)


def _export_run(run: Run, models: Path, examples: Path | None) -> None:
    from training.export import export

    bundle = export(run, models, examples)
    _say(f"exported {bundle.path}; its card is {bundle.path / 'report.md'}")
    _say(f"next: portcullis serve --models {models}")


def _compare(namespace: argparse.Namespace) -> None:
    from training import budgets, compare, comparison_report
    from training.fit import Interrupted

    config, output = flags.config_of(namespace), namespace.output
    variants = [compare.parse_variant(name) for name in namespace.variants.split(",")]
    seeds = compare.parse_numbers(namespace.seeds, "seeds", "0,1,2")
    try:
        if namespace.budgets is None:
            compare.compare(config, variants, seeds, namespace.runs, output, _say)
        else:
            epochs = compare.parse_numbers(namespace.budgets, "numbers of epochs", "4,8,16")
            budgets.compare_budgets(config, epochs, variants, seeds, namespace.runs, output, _say)
    except Interrupted:
        raise KeyboardInterrupt("saved; go on with the same command") from None
    written = comparison_report.PAGE_FILE if namespace.budgets is None else budgets.PAGE_FILE
    _say(f"written: {output / written}")


def _recipes(namespace: argparse.Namespace) -> None:
    if namespace.name is not None:
        print(flags.describe(flags.find_recipe(namespace.name)))
        return
    for name, config in RECIPES.items():
        print(f"{name:<26} {config.method} on {config.backbone}, data {config.data}, {config.epochs} epochs")
    print("\nshow one: portcullis-train recipes NAME · use one: portcullis-train run --recipe NAME")


def _say(line: str) -> None:
    if _is_main():
        print(line, flush=True)


def _is_main() -> bool:
    return os.environ.get("RANK", "0") == "0"


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "run": _run,
    "try": _try,
    "fit": _fit,
    "calibrate": _calibrate,
    "evaluate": _evaluate,
    "export": _export,
    "compare": _compare,
    "recipes": _recipes,
}

if __name__ == "__main__":
    sys.exit(main())
