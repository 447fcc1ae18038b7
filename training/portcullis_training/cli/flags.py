"""The command line's grammar: one flag for each field of a run's config, generated, so that none can be forgotten."""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any, NoReturn, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from portcullis_training.config import RunConfig, make_config
from portcullis_training.errors import ConfigError
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import read_config

DEFAULT_RUNS = Path("runs")


class Parser(argparse.ArgumentParser):
    """argparse with our errors: one line, the nearest flag that exists, and no abbreviations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, exit_on_error=False
        )

    def error(self, message: str) -> NoReturn:
        """Refuse as a typed error, which the command line prints and exits with 1."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parse, naming an unknown flag together with the nearest one of the chosen command."""
    namespace, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen: Parser = namespace.parser
        known = [flag for action in chosen._actions for flag in action.option_strings]
        nearest = difflib.get_close_matches(unknown[0].split("=")[0], known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ConfigError(f"unknown argument {unknown[0]!r}{hint} See `{chosen.prog} --help`")
    return namespace


def add_run_flags(parser: Parser) -> None:
    """--recipe, where runs are kept, and a flag for every config field."""
    parser.add_argument("--recipe", metavar="NAME", help="a named recipe (see `recipes`) or a saved config.json")
    parser.add_argument("--runs", type=Path, default=DEFAULT_RUNS, metavar="DIR", help="where run directories are kept")
    parser.add_argument("--overwrite", action="store_true", help="train anew over a run of the same name")
    group = parser.add_argument_group("fields of the config, each overriding the recipe")
    for name, field in RunConfig.model_fields.items():
        _add_field(group, name, field)


def config_of(namespace: argparse.Namespace) -> RunConfig:
    """The recipe with the flags that were given laid over it."""
    if namespace.recipe is None:
        raise ConfigError(f"--recipe NAME is needed; one of {', '.join(RECIPES)}, or a config.json")
    given = {name: _parsed(name, text) for name, text in _given(namespace).items()}
    named = {} if "name" in given else _named_after_folder(given.get("data"))
    return make_config({**find_recipe(namespace.recipe).model_dump(), **named, **given})


def _named_after_folder(data: str | None) -> dict[str, str]:
    """A run on a folder of one's own is called as the folder is, as far as a bundle may be called so."""
    kind, _, location = (data or "").partition(":")
    name = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", Path(location).resolve().name).strip("-._")[:100] if kind == "folder" else ""
    )
    return {"name": name} if name else {}


def refuse_overrides(namespace: argparse.Namespace) -> None:
    """A resumed run goes on with the config it was started with."""
    given = [f"--{name.replace('_', '-')}" for name in _given(namespace)]
    given += ["--recipe"] * (namespace.recipe is not None) + ["--overwrite"] * namespace.overwrite
    if given:
        raise ConfigError(f"--resume goes on with the config of the run as it is; {given[0]} cannot be given with it")


def _given(namespace: argparse.Namespace) -> dict[str, Any]:
    values = {name: getattr(namespace, f"field_{name}") for name in RunConfig.model_fields}
    return {name: value for name, value in values.items() if value is not None}


def find_recipe(name: str) -> RunConfig:
    """A recipe by name, or the config in a file."""
    if name.endswith(".json"):
        return read_config(Path(name))
    if name in RECIPES:
        return RECIPES[name]
    nearest = difflib.get_close_matches(name, RECIPES, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ConfigError(f"unknown recipe {name!r}; expected one of {', '.join(RECIPES)}{hint}")


def _add_field(group: Any, name: str, field: FieldInfo) -> None:
    text = inspect.cleandoc(field.description or "").replace("\n", " ").replace("%", "%%")
    flag = f"--{name.replace('_', '-')}"
    options: dict[str, Any] = {"dest": f"field_{name}", "help": text, "default": None}
    if field.annotation is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **options)
    else:
        group.add_argument(flag, metavar="VALUE", **options)


def _parsed(name: str, text: Any) -> Any:
    """The words of a flag as pydantic expects them: lists by commas, pairs by colons, `none` for nothing.

    Where a field cannot be empty, `none` is a word like any other: --mixing none.
    """
    may_be_empty = type(None) in get_args(RunConfig.model_fields[name].annotation)
    if isinstance(text, str) and text.lower() == "none" and may_be_empty:
        return None
    if name == "progressive_resizing":
        return tuple(tuple(pair.split(":")) for pair in text.split(","))
    if name in ("outside", "milestones", "class_names"):
        return tuple(part for part in text.split(" " if name == "outside" else ",") if part)
    return text


def describe(config: BaseModel) -> str:
    """A config as aligned lines."""
    width = max(len(name) for name in type(config).model_fields)
    return textwrap.indent("\n".join(f"{name:<{width}}  {value}" for name, value in config), "  ")
