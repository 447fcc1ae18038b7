"""The command line: `portcullis <command>`. What a command does is in portcullis.commands."""

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from typing import Any

from portcullis import __version__
from portcullis.commands import calibrate, models, predict, ray_serve, review, score, serve
from portcullis.errors import PortcullisError

USAGE_STATUS = 2  # as argparse ends
OVERVIEW = """a first walk:
  portcullis serve                            serve the bundles in models/
  portcullis predict photo.jpg                ask it, from another terminal
  portcullis score photos/ --out scores.csv   a whole folder
  portcullis models                           what is served
  portcullis gate --set accept99 --key …      reject less, at once and in every worker

`portcullis <command> --help` shows more.
"""


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, which a later flag would make ambiguous; what it parsed names the parser."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)
        self.set_defaults(parser=self)


def build_parser() -> Parser:
    """The commands and their flags."""
    parser = Parser(
        prog="portcullis",
        description="An image-classification server that knows when not to answer.",
        epilog=OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"portcullis {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    serve.add_command(commands)
    ray_serve.add_command(commands)
    predict.add_command(commands)
    score.add_command(commands)
    models.add_commands(commands)
    review.add_command(commands)
    calibrate.add_command(commands)
    return parser


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse, refusing an unknown flag with the nearest one of the chosen command."""
    parsed, unknown = build_parser().parse_known_args(arguments)
    if unknown and not hasattr(parsed, "passes_over_flags"):
        chosen: Parser = parsed.parser
        known = [flag for action in chosen._actions for flag in action.option_strings]
        nearest = difflib.get_close_matches(unknown[0].split("=")[0], known, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"see {chosen.prog} --help"
        chosen.exit(USAGE_STATUS, f"{chosen.prog}: unknown argument {unknown[0]}; {hint}\n")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of the console script; an error that is ours is one clear line, without a trace."""
    parsed = parse(arguments)
    try:
        status: int = parsed.run(parsed)
        return status
    except PortcullisError as error:
        print(f"portcullis: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("portcullis: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has left: `portcullis predict … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
