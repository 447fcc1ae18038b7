"""`check-data`: look at a folder of photos before anything is trained on it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from portcullis_training.commands.flags import add_pictures
from portcullis_training.commands.overrides import completed, find_recipe
from portcullis_training.commands.parser import Say, add
from portcullis_training.config import RunConfig, make_config
from portcullis_training.errors import ConfigError

EXAMPLES = """\
examples:
  portcullis-train {command} folder:my-photos
  portcullis-train {command} folder:my-photos --output look --no-pictures
"""


def add_command(commands: Any) -> None:
    text = "look at a folder of photos before anything is trained on it"
    command = add(commands, "check-data", _check_data, text, EXAMPLES)
    command.add_argument("data", metavar="folder:PATH", help="the photos, a class a sub-folder")
    command.add_argument("--recipe", default="photos", metavar="NAME", help="splits and sizes (default: %(default)s)")
    command.add_argument("--output", type=Path, default=Path("data-check"), metavar="DIR", help="where the page goes")
    add_pictures(command)


def _check_data(namespace: argparse.Namespace, say: Say) -> None:
    recipe = find_recipe(namespace.recipe).model_dump()
    config = completed(make_config({**recipe, "data": namespace.data}))
    look_at_data(config, namespace.output, namespace.pictures, say)


def look_at_data(config: RunConfig, output: Path, with_pictures: bool, say: Say) -> None:
    """Write the page of a folder, and say the gist of it."""
    from portcullis_training.data import check_page, load
    from portcullis_training.data.folder import look_into

    kind, _, location = config.data.partition(":")
    if kind != "folder":
        raise ConfigError(f"only a folder of photos can be looked at, folder:PATH, got {config.data!r}")
    folder, splits = look_into(location, config), load(config.data, config)
    check_page.write(check_page.render(folder, splits, with_pictures=with_pictures), output)
    for line in check_page.summary(folder, splits):
        say(f"  {line}")
    say(f"looked at {location}: {output / check_page.PAGE_FILE}")
