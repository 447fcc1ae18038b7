"""The command line: run, fit, calibrate, evaluate, export, compare, recipes. The only place that prints.

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
from training import flags, host
from training.flags import Parser
from training.recipes import RECIPES
from training.runs import Run, create_run, open_run

if TYPE_CHECKING:
    from training.evaluate import Evaluation

logger = logging.getLogger("training")

EXAMPLES = """\
examples:
  portcullis-train recipes                                    what can be trained
  portcullis-train run --recipe digits                        the whole line, in under two minutes
  portcullis-train fit --recipe cifar10-resnet9 --data npz:train.npz,test.npz --epochs 10 --name short
  portcullis-train fit --resume runs/short                    go on after Ctrl-C or a crash
  portcullis-train calibrate runs/short                       each stage again, alone
  torchrun --nproc-per-node 4 -m training fit --recipe cifar10-wrn-28-10
"""

RUN_EXAMPLES = """\
examples:
  portcullis-train {command} --recipe digits
  portcullis-train {command} --recipe digits --method softmax --name digits-softmax --seed 3
  portcullis-train {command} --recipe fashion-mnist --data idx:/data/fashion --outside "noise:uniform shuffled"
"""


COMPARE_EXAMPLES = """\
example (resumes where it stopped when given again):
  portcullis-train compare --recipe cifar10-resnet9 --epochs 6 --seeds 0,1,2 --output docs/results/short
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; every error that a person can put right is one line."""
    host.settle()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        namespace = flags.parse(_parser(), sys.argv[1:] if arguments is None else arguments)
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


def _parser() -> Parser:
    parser = Parser(prog="portcullis-train", description="From images to a verified bundle.", epilog=EXAMPLES)
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    run = _command(commands, "run", _run, "fit, calibrate, evaluate and export in one go", RUN_EXAMPLES)
    flags.add_run_flags(run)
    run.add_argument(
        "--models", type=Path, default=flags.DEFAULT_MODELS, metavar="DIR", help="where bundles are written"
    )
    fit = _command(
        commands, "fit", _fit, "train a classifier", RUN_EXAMPLES + "  portcullis-train fit --resume runs/digits\n"
    )
    flags.add_run_flags(fit)
    fit.add_argument("--resume", type=Path, metavar="RUN", help="go on with the run in this directory")
    for name, function, text in (
        ("calibrate", _calibrate, "fit the temperature and the gate of a trained run"),
        ("evaluate", _evaluate, "measure a calibrated run, or its bundle as served, on test and outside images"),
        ("export", _export, "write the bundle of an evaluated run, and prove that it can be served"),
    ):
        command = _command(commands, name, function, text, "example:\n  portcullis-train {command} runs/digits\n")
        command.add_argument("run", type=Path, metavar="RUN", help="directory of the run, such as runs/digits")
        if name == "evaluate":
            command.add_argument(
                "--bundle", type=Path, metavar="DIR", help="measure this bundle of the run as the service serves it"
            )
        if name == "export":
            command.add_argument(
                "--models", type=Path, default=flags.DEFAULT_MODELS, metavar="DIR", help="where bundles are written"
            )
    compare = _command(
        commands,
        "compare",
        _compare,
        "train twins that differ in their method alone, and tabulate them",
        COMPARE_EXAMPLES,
    )
    flags.add_run_flags(compare)
    compare.add_argument(
        "--variants",
        default="softmax,isomaxplus,dismax,dismax+fractional",
        metavar="LIST",
        help="methods by commas; +fractional adds the fractional regulariser (default: %(default)s)",
    )
    compare.add_argument("--seeds", default="0,1,2", metavar="LIST", help="seeds by commas (default: %(default)s)")
    compare.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="where results.json, results.md and plots go"
    )
    recipes = _command(
        commands,
        "recipes",
        _recipes,
        "list the recipes, or show one",
        "example:\n  portcullis-train {command} digits\n",
    )
    recipes.add_argument("name", nargs="?", help="show every field of this recipe")
    return parser


def _command(
    commands: argparse._SubParsersAction[Parser],
    name: str,
    function: Callable[[argparse.Namespace], None],
    text: str,
    epilog: str,
) -> Parser:
    command = commands.add_parser(name, help=text, description=text, epilog=epilog.format(command=name))
    command.set_defaults(command=function, parser=command)
    return command


def _fit(namespace: argparse.Namespace) -> None:
    if namespace.resume is not None:
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
        _export_run(run, namespace.models)


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
    _export_run(open_run(namespace.run), namespace.models)


def _export_run(run: Run, models: Path) -> None:
    from training.export import export

    bundle = export(run, models)
    _say(f"exported {bundle.path}; its card is {bundle.path / 'report.md'}")
    _say(f"next: portcullis serve --models {models}")


def _compare(namespace: argparse.Namespace) -> None:
    from training.compare import compare, parse_seeds, parse_variant
    from training.fit import Interrupted

    variants = [parse_variant(name) for name in namespace.variants.split(",")]
    seeds = parse_seeds(namespace.seeds)
    try:
        compare(flags.config_of(namespace), variants, seeds, namespace.runs, namespace.output, _say)
    except Interrupted:
        raise KeyboardInterrupt("saved; go on with the same command") from None
    _say(f"written: {namespace.output / 'results.md'}")


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


if __name__ == "__main__":
    sys.exit(main())
