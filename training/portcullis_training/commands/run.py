"""`run`: the whole line in one go."""

from __future__ import annotations

import argparse
import time
from typing import Any

from portcullis_training.commands import torchrun
from portcullis_training.commands.answers import show_answers
from portcullis_training.commands.calibrate import calibrate_run
from portcullis_training.commands.check_data import look_at_data
from portcullis_training.commands.durations import duration
from portcullis_training.commands.evaluate import evaluate_run
from portcullis_training.commands.export import export_run
from portcullis_training.commands.fit import train_run
from portcullis_training.commands.flags import RUN_EXAMPLES, add_cost, add_models, add_pictures, add_run_flags
from portcullis_training.commands.overrides import completed, config_of
from portcullis_training.commands.parser import Say, add
from portcullis_training.runs.directory import create_run


def add_command(commands: Any) -> None:
    command = add(commands, "run", _run, "fit, calibrate, evaluate and export in one go", RUN_EXAMPLES)
    add_run_flags(command)
    add_models(command)
    add_cost(command)
    add_pictures(command)


def _run(namespace: argparse.Namespace, say: Say) -> None:
    try:
        _whole_line(namespace, say)
    except KeyboardInterrupt:  # `fit --resume` would end before the bundle
        without = ", without --overwrite" if namespace.overwrite else ""
        raise KeyboardInterrupt(f"what is done is kept; go on with the same command{without}") from None


def _whole_line(namespace: argparse.Namespace, say: Say) -> None:
    from portcullis_training.data import outside_specs
    from portcullis_training.exporting.export import check_destination, refuse_what_is_no_graph
    from portcullis_training.fitting.ensemble import method_of

    started = time.monotonic()
    check_destination(namespace.models, namespace.examples)
    config = completed(config_of(namespace))
    refuse_what_is_no_graph(method_of(config))
    outside_specs(config.outside)
    run = create_run(namespace.runs, config, overwrite=namespace.overwrite)
    if run.config.data.startswith("folder:") and torchrun.is_main():
        look_at_data(run.config, run.directory / "data", namespace.pictures, say)
    train_run(run, say, time.monotonic() - started)
    if torchrun.is_main():
        calibrate_run(run, say)
        evaluate_run(run, namespace.cost, say)
        show_answers(run, namespace.pictures, say)
        export_run(run, namespace.models, namespace.examples, None, say)
        say(f"the whole run took {duration(time.monotonic() - started)}")
