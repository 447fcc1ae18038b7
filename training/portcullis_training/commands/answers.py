"""`answers`: show how a calibrated run answers, photo by photo, and what to photograph next."""

from __future__ import annotations

import argparse
from typing import Any

from portcullis_training.commands.flags import add_pictures, add_run
from portcullis_training.commands.parser import Say, add
from portcullis_training.runs.directory import Run, open_run

EXAMPLES = """\
The page stays in the run's directory: mistakes, strange photos, doubtful labels, the classes that need more photos.
examples:
  portcullis-train {command} runs/my-photos
  portcullis-train {command} runs/my-photos --no-pictures
"""


def add_command(commands: Any) -> None:
    text = "show how a calibrated run answers, photo by photo, and what to photograph next"
    command = add_run(add(commands, "answers", _answers, text, EXAMPLES))
    add_pictures(command)


def _answers(namespace: argparse.Namespace, say: Say) -> None:
    show_answers(open_run(namespace.run), namespace.pictures, say)


def show_answers(run: Run, with_pictures: bool, say: Say) -> None:
    """Write the page of a run, and say where it is."""
    from portcullis_training.exporting import answers_page

    page = answers_page.write_answers(run, with_pictures=with_pictures)
    say(f"how it answers, and what to photograph next: {page}")
