"""argparse as every command has it: errors in one line, the nearest flag that exists, help that teaches by example."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable
from typing import Any, NoReturn

from portcullis_training.errors import ConfigError

ONE_RUN_EXAMPLE = "example:\n  portcullis-train {command} runs/digits\n"

Say = Callable[[str], None]
"""Shows a line to whoever gave the command."""
Work = Callable[[argparse.Namespace, Say], None]


class Parser(argparse.ArgumentParser):
    """argparse with our errors: one line, the nearest flag that exists, and no abbreviations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, exit_on_error=False
        )

    def error(self, message: str) -> NoReturn:
        """Refuse as a typed error, which the command line prints and exits with 1."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def add(commands: Any, name: str, work: Work, text: str, epilog: str = ONE_RUN_EXAMPLE) -> Parser:
    """A command of that name among the others; parsed, it sets `work`."""
    command: Parser = commands.add_parser(name, help=text, description=text, epilog=epilog.format(command=name))
    command.set_defaults(work=work, parser=command)
    return command


def parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parse, naming an unknown flag together with the nearest one of the chosen command."""
    namespace, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen: Parser = namespace.parser
        known = [flag for action in chosen._actions for flag in action.option_strings]
        nearest = difflib.get_close_matches(unknown[0].split("=")[0], known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else "."
        raise ConfigError(f"unknown argument {unknown[0]!r}{hint} See `{chosen.prog} --help`")
    return namespace
