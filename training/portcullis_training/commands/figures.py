"""`figures`: loss landscapes, mean logits and a compound image of runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from portcullis_training.commands.flags import count
from portcullis_training.commands.parser import Say, add
from portcullis_training.runs.directory import open_run

EXAMPLES = """\
example:
  portcullis-train {command} runs/softmax runs/isomaxplus runs/dismax --output docs/results/figures
"""


def add_command(commands: Any) -> None:
    text = "draw loss landscapes, mean logits and a compound image of runs"
    command = add(commands, "figures", _figures, text, EXAMPLES)
    command.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="calibrated runs, to stand side by side")
    command.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the figures go")
    command.add_argument(
        "--places",
        type=_places,
        default=21,
        metavar="N",
        help="of the landscape, along each side: N x N losses of 500 training images a run (default: %(default)s)",
    )


def _places(text: str) -> int:
    if text == "1":
        raise argparse.ArgumentTypeError("expected at least 2, for one place is no landscape")
    return count(text)


def _figures(namespace: argparse.Namespace, say: Say) -> None:
    from portcullis_training.comparing.figures import draw_figures

    for path in draw_figures([open_run(directory) for directory in namespace.runs], namespace.output, namespace.places):
        say(f"written: {path}")
