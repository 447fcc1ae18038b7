"""The config that a command asks for: a recipe, with the flags that were given laid over it."""

from __future__ import annotations

import argparse
import difflib
import re
from pathlib import Path
from typing import Any, get_args

from portcullis_training.config import RunConfig, make_config
from portcullis_training.errors import ConfigError
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import read_config


def config_of(namespace: argparse.Namespace) -> RunConfig:
    """The recipe with the flags that were given laid over it."""
    if namespace.recipe is None:
        raise ConfigError(f"--recipe NAME is needed; one of {', '.join(RECIPES)}, or a config.json")
    given = {name: _parsed(name, text) for name, text in _given(namespace).items()}
    named = {} if "name" in given else _named_after_folder(given.get("data"))
    return make_config({**find_recipe(namespace.recipe).model_dump(), **named, **given})


def completed(config: RunConfig) -> RunConfig:
    """With the image geometry of pretrained weights; without them nothing of torch is imported for it."""
    if config.pretrained_weights is None:
        return config
    from portcullis_training.fitting.pretraining import with_geometry

    return with_geometry(config)


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
