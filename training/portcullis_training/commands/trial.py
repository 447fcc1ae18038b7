"""`try`: a few steps of a run and all that follows them, with nothing written."""

from __future__ import annotations

import argparse
from typing import Any

from portcullis_training.commands import torchrun
from portcullis_training.commands.durations import duration
from portcullis_training.commands.flags import add_run_flags, count
from portcullis_training.commands.overrides import completed, config_of
from portcullis_training.commands.parser import Say, add

EXAMPLES = """\
example (nothing is written):
  portcullis-train {command} --recipe cifar10-wrn-28-10 --steps 3
"""


def add_command(commands: Any) -> None:
    text = "a few steps of a run and all that follows them, to see that it works and how long it would take"
    command = add(commands, "try", _try, text, EXAMPLES)
    add_run_flags(command)
    command.add_argument("--steps", type=count, default=3, metavar="N", help="how many (default: %(default)s)")


def _try(namespace: argparse.Namespace, say: Say) -> None:
    from portcullis_training.data import outside_specs
    from portcullis_training.exporting.rehearsal import rehearse
    from portcullis_training.fitting.trial import trial

    config = completed(config_of(namespace))
    outside_specs(config.outside)
    tried = trial(config, namespace.steps)
    say(f"{config.name}: {config.backbone}, {tried.num_parameters / 1e6:.2f} M parameters, batch {tried.batch_size}")
    for stage in tried.stages:
        if len(tried.stages) > 1:
            say(f"  images {f'of {stage.pixels} pixels' if stage.pixels else 'in full size'}:")
        for number, step in enumerate(stage.steps, start=1):
            say(f"  step {number}: loss {step.loss:.4f}, {step.seconds:.2f} s")
    if config.frozen:
        say(f"  encoding all photos once: {duration(tried.encoding_seconds)}; calibrating and evaluating at the end, "
            f"without outside sets of your own: {duration(tried.later_seconds)}")  # fmt: skip
    if torchrun.is_main():
        say(f"  calibrated, exported and compared with torch on a few images: {rehearse(tried, config) / 1e6:.1f} MB")
    limit = f"; --minutes keeps it to about {config.minutes:g} minutes" if config.minutes is not None else ""
    say(f"the whole run of {tried.num_run_steps} steps would take {duration(tried.run_seconds)} here{limit}")
