"""`fit`: train a classifier, or go on with one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from portcullis_training.commands.flags import RUN_EXAMPLES, add_run_flags
from portcullis_training.commands.overrides import completed, config_of, refuse_overrides
from portcullis_training.commands.parser import Say, add
from portcullis_training.runs.directory import Run, create_run, open_run


def add_command(commands: Any) -> None:
    examples = RUN_EXAMPLES + "  portcullis-train fit --resume runs/digits\n"
    command = add(commands, "fit", _fit, "train a classifier", examples)
    add_run_flags(command)
    command.add_argument("--resume", type=Path, metavar="RUN", help="go on with the run in this directory")


def _fit(namespace: argparse.Namespace, say: Say) -> None:
    if namespace.resume is not None:
        refuse_overrides(namespace)
        run = open_run(namespace.resume)
    else:
        run = create_run(namespace.runs, completed(config_of(namespace)), overwrite=namespace.overwrite)
    train_run(run, say)
    say(f"next: portcullis-train calibrate {run.directory}")


def train_run(run: Run, say: Say, seconds_before: float = 0.0) -> None:
    """Train, and say what came of it."""
    from portcullis_training.fitting.fit import Interrupted
    from portcullis_training.fitting.staged import train

    say(f"{'resuming' if run.checkpoint_path.exists() else 'training'} {run.config.name} in {run.directory}")
    try:
        history = train(run, seconds_before=seconds_before)
    except Interrupted:
        raise KeyboardInterrupt(f"saved; go on with: portcullis-train fit --resume {run.directory}") from None
    last = history[-1]
    accuracy = last["validation_accuracy"]
    say(f"trained {int(last['epoch'])} epochs: loss {last['loss']:.4f}, accuracy on validation images {accuracy:.2%}")
