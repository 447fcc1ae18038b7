"""The flags that commands share: one for each field of a config, generated so that none is forgotten, and a few."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from portcullis_training.commands.parser import Parser
from portcullis_training.config import RunConfig
from portcullis_training.runs.directory import Run, measured_against, open_run

DEFAULT_RUNS = Path("runs")
DEFAULT_MODELS = Path("models")

RUN_EXAMPLES = """\
examples:
  portcullis-train {command} --recipe photos --data folder:my-photos --minutes 20
  portcullis-train {command} --recipe digits
  portcullis-train {command} --recipe digits --method softmax --name digits-softmax --seed 3
  portcullis-train {command} --recipe fashion-mnist --data idx:/data/fashion --outside "noise:uniform shuffled"
"""


def add_run_flags(parser: Parser) -> None:
    """--recipe, where runs are kept, and a flag for every config field."""
    parser.add_argument("--recipe", metavar="NAME", help="a named recipe (see `recipes`) or a saved config.json")
    parser.add_argument("--runs", type=Path, default=DEFAULT_RUNS, metavar="DIR", help="where run directories are kept")
    parser.add_argument("--overwrite", action="store_true", help="train anew over a run of the same name")
    group = parser.add_argument_group("fields of the config, each overriding the recipe")
    for name, field in RunConfig.model_fields.items():
        _add_field(group, name, field)


def _add_field(group: Any, name: str, field: FieldInfo) -> None:
    text = inspect.cleandoc(field.description or "").replace("\n", " ").replace("%", "%%")
    flag = f"--{name.replace('_', '-')}"
    options: dict[str, Any] = {"dest": f"field_{name}", "help": text, "default": None}
    if field.annotation is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **options)
    else:
        group.add_argument(flag, metavar="VALUE", **options)


def add_run(command: Parser) -> Parser:
    """The directory of a run."""
    command.add_argument("run", type=Path, metavar="RUN", help="directory of the run, such as runs/digits")
    return command


def add_models(command: Parser) -> None:
    """Where bundles go, and what is shown beside them."""
    command.add_argument("--models", type=Path, default=DEFAULT_MODELS, metavar="DIR", help="where bundles are written")
    command.add_argument(
        "--examples",
        type=Path,
        metavar="DIR",
        help="pictures, or a folder a kind, to ship in the bundle for the console",
    )


def add_outside(command: Parser) -> None:
    """Other sets to measure against."""
    command.add_argument(
        "--outside",
        metavar="SPECS",
        help="out-of-distribution (OOD) sets by blanks, in the place of those in its config, for good",
    )


def add_pictures(command: Parser) -> None:
    """Whether photos may be shown."""
    command.add_argument(
        "--pictures",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show photos on contact sheets; --no-pictures for photos that are nobody's business",
    )


def add_cost(command: Parser) -> None:
    """Whether speed is measured."""
    command.add_argument(
        "--cost",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="time the exported graph beside its SoftMax twin, for at most half a minute of one core",
    )


def count(text: str) -> int:
    """A whole number from 1, as the type of a flag."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def open_against(directory: Path, outside: str | None) -> Run:
    """A run, measured against its own outside sets or those that are given, which it keeps unless they are refused."""
    run = open_run(directory)
    if outside is None:
        return run
    from portcullis_training.data import outside_specs

    specs = outside.split()
    outside_specs(specs)
    return measured_against(run, tuple(specs))
