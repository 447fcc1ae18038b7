"""`export`: write the bundle of an evaluated run, and prove that it can be served."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from portcullis_training.commands.flags import add_models, add_run
from portcullis_training.commands.parser import Say, add
from portcullis_training.runs.directory import Run, open_run


def add_command(commands: Any) -> None:
    text = "write the bundle of an evaluated run, and prove that it can be served"
    command = add_run(add(commands, "export", _export, text))
    add_models(command)
    command.add_argument("--name", metavar="NAME", help="of the bundle (default: that of the run)")


def _export(namespace: argparse.Namespace, say: Say) -> None:
    export_run(open_run(namespace.run), namespace.models, namespace.examples, namespace.name, say)


def export_run(run: Run, models: Path, examples: Path | None, name: str | None, say: Say) -> None:
    """Export, and say where to."""
    from portcullis_training.exporting.export import export

    bundle = export(run, models, examples, name)
    say(f"exported {bundle.path}; its card is {bundle.path / 'report.md'}")
    say(f"next: portcullis serve --models {models} --default-model {bundle.manifest.name}")
