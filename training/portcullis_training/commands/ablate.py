"""`ablate`: what every part of the score is worth."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from portcullis_training.commands.flags import add_outside, open_against
from portcullis_training.commands.parser import Say, add

EXAMPLES = """\
example (twins that differ in their method, both calibrated):
  portcullis-train {command} runs/digits runs/digits-softmax --output docs/results/ablation
"""


def add_command(commands: Any) -> None:
    text = "tabulate what every part of the score of calibrated runs is worth"
    command = add(commands, "ablate", _ablate, text, EXAMPLES)
    command.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directories of calibrated runs")
    add_outside(command)
    command.add_argument(
        "--knn",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure KNN over all training images too, which takes a pass over them",
    )
    command.add_argument("--output", type=Path, required=True, metavar="DIR", help="where figures, page and plot go")


def _ablate(namespace: argparse.Namespace, say: Say) -> None:
    from portcullis_training.comparing import ablation_page
    from portcullis_training.comparing.ablation import ablate

    runs = [open_against(directory, namespace.outside) for directory in namespace.runs]
    ablate(runs, namespace.output, say, with_knn=namespace.knn)
    say(f"written: {namespace.output / ablation_page.PAGE_FILE}")
