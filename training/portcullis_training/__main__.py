"""The command line: a function for every command, from `run` to `recipes`. The only place that prints.

Exit codes: 0 done, 1 an error that the message explains, 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from portcullis.errors import PortcullisError
from portcullis_training.cli import flags, grammar, host
from portcullis_training.config import RunConfig, make_config
from portcullis_training.errors import ConfigError
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import Run, create_run, measured_against, open_run

if TYPE_CHECKING:
    from portcullis_training.comparing.paper_table import Tiers
    from portcullis_training.measuring.evaluation import Evaluation

COMPARED = ("softmax", "isomaxplus", "dismax", "dismax+fractional")
"""Twins that are compared where none are asked for."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; every error that a person can put right is one line."""
    host.settle()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("portcullis_training").setLevel(logging.INFO)
    try:
        namespace = flags.parse(grammar.build(COMMANDS), sys.argv[1:] if arguments is None else arguments)
        namespace.command(namespace)
    except PortcullisError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except argparse.ArgumentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "portcullis").startswith("portcullis"):  # our own mistake, not a missing package
            raise
        extras = "pip install 'portcullis[cpu,training]', or [gpu,training] on a machine with an NVIDIA GPU"
        print(f"error: {error.name} is missing: {extras}", file=sys.stderr)
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
        run = create_run(namespace.runs, _config(namespace), overwrite=namespace.overwrite)
    _train(run)
    _say(f"next: portcullis-train calibrate {run.directory}")


def _run(namespace: argparse.Namespace) -> None:
    try:
        _whole_line(namespace)
    except KeyboardInterrupt:  # `fit --resume` would end before the bundle
        without = ", without --overwrite" if namespace.overwrite else ""
        raise KeyboardInterrupt(f"what is done is kept; go on with the same command{without}") from None


def _whole_line(namespace: argparse.Namespace) -> None:
    from portcullis_training.data import outside_specs
    from portcullis_training.exporting.export import check_destination

    started = time.monotonic()
    check_destination(namespace.models, namespace.examples)
    config = _config(namespace)
    outside_specs(config.outside)
    run = create_run(namespace.runs, config, overwrite=namespace.overwrite)
    if run.config.data.startswith("folder:") and _is_main():
        _look_at_data(run.config, run.directory / "data", namespace.pictures)
    _train(run, time.monotonic() - started)
    if _is_main():
        _calibrate_run(run)
        _evaluate_run(run, namespace.cost)
        _answers_of(run, namespace.pictures)
        _export_run(run, namespace.models, namespace.examples)
        _say(f"the whole run took {_duration(time.monotonic() - started)}")


def _check_data(namespace: argparse.Namespace) -> None:
    recipe = flags.find_recipe(namespace.recipe).model_dump()
    config = _completed(make_config({**recipe, "data": namespace.data}))
    _look_at_data(config, namespace.output, namespace.pictures)


def _look_at_data(config: RunConfig, output: Path, with_pictures: bool) -> None:
    from portcullis_training.data import check_page, load
    from portcullis_training.data.folder import look_into

    kind, _, location = config.data.partition(":")
    if kind != "folder":
        raise ConfigError(f"only a folder of photos can be looked at, folder:PATH, got {config.data!r}")
    folder, splits = look_into(location, config), load(config.data, config)
    check_page.write(check_page.render(folder, splits, with_pictures=with_pictures), output)
    for line in check_page.summary(folder, splits):
        _say(f"  {line}")
    _say(f"looked at {location}: {output / check_page.PAGE_FILE}")


def _config(namespace: argparse.Namespace) -> RunConfig:
    return _completed(flags.config_of(namespace))


def _completed(config: RunConfig) -> RunConfig:
    """With the image geometry of pretrained weights; without them nothing of torch is imported for it."""
    if config.pretrained_weights is None:
        return config
    from portcullis_training.fitting.pretraining import with_geometry

    return with_geometry(config)


def _try(namespace: argparse.Namespace) -> None:
    from portcullis_training.data import outside_specs
    from portcullis_training.exporting.rehearsal import rehearse
    from portcullis_training.fitting.trial import trial

    config = _config(namespace)
    outside_specs(config.outside)
    tried = trial(config, namespace.steps)
    _say(f"{config.name}: {config.backbone}, {tried.num_parameters / 1e6:.2f} M parameters, batch {tried.batch_size}")
    for stage in tried.stages:
        if len(tried.stages) > 1:
            _say(f"  images {f'of {stage.pixels} pixels' if stage.pixels else 'in full size'}:")
        for number, step in enumerate(stage.steps, start=1):
            _say(f"  step {number}: loss {step.loss:.4f}, {step.seconds:.2f} s")
    if config.frozen:
        _say(f"  encoding all photos once: {_duration(tried.encoding_seconds)}; calibrating and evaluating at the end, "
             f"without outside sets of your own: {_duration(tried.later_seconds)}")  # fmt: skip
    if _is_main():
        _say(f"  calibrated, exported and compared with torch on a few images: {rehearse(tried, config) / 1e6:.1f} MB")
    limit = f"; --minutes keeps it to about {config.minutes:g} minutes" if config.minutes is not None else ""
    _say(f"the whole run of {tried.num_run_steps} steps would take {_duration(tried.run_seconds)} here{limit}")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"


def _train(run: Run, seconds_before: float = 0.0) -> None:
    from portcullis_training.fitting.fit import Interrupted
    from portcullis_training.fitting.staged import train

    _say(f"{'resuming' if run.checkpoint_path.exists() else 'training'} {run.config.name} in {run.directory}")
    try:
        history = train(run, seconds_before=seconds_before)
    except Interrupted:
        raise KeyboardInterrupt(f"saved; go on with: portcullis-train fit --resume {run.directory}") from None
    last = history[-1]
    accuracy = last["validation_accuracy"]
    _say(f"trained {int(last['epoch'])} epochs: loss {last['loss']:.4f}, accuracy on validation images {accuracy:.2%}")


def _calibrate(namespace: argparse.Namespace) -> None:
    _calibrate_run(open_run(namespace.run))
    _say(f"next: portcullis-train evaluate {namespace.run}")


def _calibrate_run(run: Run) -> None:
    from portcullis_training.measuring.calibration import calibrate

    started = time.monotonic()
    _say(f"calibrating {run.config.name}: temperature, score ({run.config.score}) and gate")
    calibration = calibrate(run)
    points = ", ".join(f"{point.name} at {point.threshold:.4f}" for point in calibration.operating_points)
    num_images = calibration.scores.num_images
    score = calibration.score
    weights = ", ".join(f"{part} {weight:.2f}" for part, weight in zip(score.parts, score.weights, strict=True))
    _say(f"calibrated in {time.monotonic() - started:.0f} s: temperature {calibration.temperature:.4f}, "
         f"{num_images} calibration images")  # fmt: skip
    _say(f"  score {score.name}, by weight: {weights}")
    _say(f"  operating points: {points or 'none, for so few images can promise nothing'}")


def _evaluate(namespace: argparse.Namespace) -> None:
    run = _open_against(namespace.run, namespace.outside)
    if namespace.bundle is not None:
        _evaluate_bundle(run, namespace.bundle)
        return
    _evaluate_run(run, namespace.cost)
    _say(f"next: portcullis-train export {namespace.run}")


def _open_against(directory: Path, outside: str | None) -> Run:
    """A run, measured against its own outside sets or those that are given."""
    run = open_run(directory)
    return run if outside is None else measured_against(run, tuple(outside.split()))


def _evaluate_run(run: Run, time_cost: bool) -> None:
    from portcullis_training.measuring.evaluation import evaluate

    _say_figures(evaluate(run, time_cost=time_cost))


def _evaluate_bundle(run: Run, directory: Path) -> None:
    from portcullis.bundle.files import load_bundle
    from portcullis_training.measuring.evaluation import evaluate_bundle

    _say_figures(evaluate_bundle(load_bundle(directory), run))


def _say_figures(evaluation: Evaluation) -> None:
    inside = evaluation.inside
    _say(f"evaluated: accuracy {inside.accuracy:.2%}, ECE {inside.ece:.4f} on {inside.num_images} test images")
    for name, figures in evaluation.outside.items():
        detection = figures.by_score[evaluation.shipped_score]
        own = figures.by_score.get("mmles")
        beside = "" if own is None else f" (MMLES {own.auroc_inside_positive:.4f})"
        _say(f"  out-of-distribution {name:<20} AUROC {detection.auroc_inside_positive:.4f}{beside}, "
             f"TNR@TPR95 {detection.tnr_at_tpr95_inside_positive:.4f} (in-distribution positive)")  # fmt: skip


def _answers(namespace: argparse.Namespace) -> None:
    _answers_of(open_run(namespace.run), namespace.pictures)


def _answers_of(run: Run, with_pictures: bool) -> None:
    from portcullis_training.exporting import answers_page

    page = answers_page.write_answers(run, with_pictures=with_pictures)
    _say(f"how it answers, and what to photograph next: {page}")


def _export(namespace: argparse.Namespace) -> None:
    _export_run(open_run(namespace.run), namespace.models, namespace.examples, namespace.name)


def _export_run(run: Run, models: Path, examples: Path | None, name: str | None = None) -> None:
    from portcullis_training.exporting.export import export

    bundle = export(run, models, examples, name)
    _say(f"exported {bundle.path}; its card is {bundle.path / 'report.md'}")
    _say(f"next: portcullis serve --models {models} --default-model {bundle.manifest.name}")


def _ablate(namespace: argparse.Namespace) -> None:
    from portcullis_training.comparing import ablation_page
    from portcullis_training.comparing.ablation import ablate

    runs = [_open_against(directory, namespace.outside) for directory in namespace.runs]
    ablate(runs, namespace.output, _say, with_knn=namespace.knn)
    _say(f"written: {namespace.output / ablation_page.PAGE_FILE}")


def _compare(namespace: argparse.Namespace) -> None:
    from portcullis_training.comparing import budgets, compare, paper, paper_table
    from portcullis_training.comparing import report as comparison_report
    from portcullis_training.fitting.fit import Interrupted

    config, output = _config(namespace), namespace.output
    listed = namespace.variants or ",".join(paper_table.VARIANTS.get(namespace.table, COMPARED))
    variants = [compare.parse_variant(name) for name in listed.split(",")]
    seeds = compare.parse_numbers(namespace.seeds, "seeds", "0,1,2")
    try:
        if namespace.table is not None:
            tiers, elsewhere = _tiers(namespace, config), namespace.cells
            paper.tabulate(config, namespace.table, tiers, variants, seeds, namespace.runs, output, _say, elsewhere)
        elif namespace.budgets is None:
            compare.compare(config, variants, seeds, namespace.runs, output, _say)
        else:
            epochs = compare.parse_numbers(namespace.budgets, "numbers of epochs", "4,8,16")
            budgets.compare_budgets(config, epochs, variants, seeds, namespace.runs, output, _say)
    except Interrupted:
        raise KeyboardInterrupt("saved; go on with the same command") from None
    written = comparison_report.PAGE_FILE if namespace.budgets is None else budgets.PAGE_FILE
    written = written if namespace.table is None else f"{namespace.table}.md"
    _say(f"written: {output / written}")


def _page(namespace: argparse.Namespace) -> None:
    from portcullis_training.comparing.paper import read_table, write_page

    found = read_table(namespace.figures)
    _say(f"written: {write_page(found, namespace.figures.parent)}")


def _tiers(namespace: argparse.Namespace, config: RunConfig) -> Tiers:
    """Near, far and very far sets as they were given, or those of the config."""
    from portcullis_training.comparing.paper import tiers_of
    from portcullis_training.comparing.paper_table import Tiers

    given = {name: getattr(namespace, name) for name in ("near", "far", "very_far")}
    if not any(given.values()):
        return tiers_of(config.outside)
    return Tiers(**{name: tuple((specs or "").split()) for name, specs in given.items()})


def _figures(namespace: argparse.Namespace) -> None:
    from portcullis_training.comparing.figures import draw_figures

    for path in draw_figures([open_run(directory) for directory in namespace.runs], namespace.output, namespace.places):
        _say(f"written: {path}")


def _pack(namespace: argparse.Namespace) -> None:
    from portcullis.bundle.manifest import ImageSpec
    from portcullis_training.data.packing import pack

    size = namespace.image_size
    geometry = size and ImageSpec(height=size, width=size, interpolation=namespace.interpolation)
    packed = pack(namespace.spec, namespace.part, geometry, namespace.output)
    count, height, width = packed.shape[:3]
    _say(f"wrote {namespace.output}: {count} images of {width}×{height} pixels, {packed.num_classes} classes")
    _say(f"sha256 of the pixels: {packed.pixels_sha256}")


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
    "check-data": _check_data,
    "try": _try,
    "fit": _fit,
    "calibrate": _calibrate,
    "evaluate": _evaluate,
    "answers": _answers,
    "export": _export,
    "ablate": _ablate,
    "compare": _compare,
    "page": _page,
    "figures": _figures,
    "pack": _pack,
    "recipes": _recipes,
}

if __name__ == "__main__":
    sys.exit(main())
