"""`recipes`: what can be trained."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from portcullis_training.commands.overrides import find_recipe
from portcullis_training.commands.parser import Say, add
from portcullis_training.config import RunConfig
from portcullis_training.recipes import RECIPES


def add_command(commands: Any) -> None:
    example = "example:\n  portcullis-train {command} digits\n"
    command = add(commands, "recipes", _recipes, "list the recipes, or show one", example)
    command.add_argument("name", nargs="?", help="show every field of this recipe")


def _recipes(namespace: argparse.Namespace, say: Say) -> None:
    if namespace.name is not None:
        say(_describe(find_recipe(namespace.name)))
        return
    for name, config in RECIPES.items():
        say(f"{name:<26} {config.method} on {config.backbone}, data {config.data}, {config.epochs} epochs")
    say("\nshow one: portcullis-train recipes NAME · use one: portcullis-train run --recipe NAME")


def _describe(config: RunConfig) -> str:
    """A config as aligned lines."""
    width = max(len(name) for name in type(config).model_fields)
    return textwrap.indent("\n".join(f"{name:<{width}}  {value}" for name, value in config), "  ")
