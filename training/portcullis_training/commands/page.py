"""`page`: a table's page and plots, from its figures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from portcullis_training.commands.parser import Say, add

EXAMPLES = """\
Nothing is trained: the figures are those of the file, so that a page can be written anew with newer words or plots.
example:
  portcullis-train {command} docs/results/paper/paper.json
"""


def add_command(commands: Any) -> None:
    command = add(commands, "page", _page, "write the page and plots of a table again from its figures", EXAMPLES)
    command.add_argument("figures", type=Path, metavar="FILE", help="paper.json or ablation.json, as compare wrote it")


def _page(namespace: argparse.Namespace, say: Say) -> None:
    from portcullis_training.comparing.paper import read_table, write_page

    found = read_table(namespace.figures)
    say(f"written: {write_page(found, namespace.figures.parent)}")
