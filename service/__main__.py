"""The command line: `portcullis <command>`. `serve` is here; what talks to a service is in service.commands."""

import argparse
import os
import sys
from collections.abc import Sequence

from service import __version__, logs, settings
from service.commands import models, predict, review, score
from service.errors import PortcullisError

OVERVIEW = """a first walk:
  portcullis serve                            serve the bundles in models/
  portcullis predict photo.jpg                ask it, from another terminal
  portcullis score photos/ --out scores.csv   a whole folder
  portcullis models                           what is served
  portcullis gate --set accept99 --key …      reject less, at once and in every worker

`portcullis <command> --help` shows more.
"""
EXAMPLES = """examples:
  portcullis serve                                   serve the newest version of every bundle in models/
  portcullis serve --gate accept99 --port 9000       reject less: at most 1 % of familiar images
  portcullis serve --config portcullis.toml          settings from a file
  PORTCULLIS_ADMIN_KEYS=me:a-long-secret portcullis serve   with the admin routes on

every setting is a flag, a PORTCULLIS_* variable and a key of the TOML file; flags win, then variables, then the file.
"""


def build_parser() -> argparse.ArgumentParser:
    """The commands and their flags."""
    parser = argparse.ArgumentParser(
        prog="portcullis",
        description="An image-classification server that knows when not to answer.",
        epilog=OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"portcullis {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    serve = commands.add_parser(
        "serve",
        help="serve bundles over HTTP",
        description="Serve the bundles of a models directory over HTTP.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    settings.add_flags(serve)
    serve.set_defaults(run=_serve)
    predict.add_command(commands)
    score.add_command(commands)
    models.add_commands(commands)
    review.add_command(commands)
    return parser


def _serve(arguments: argparse.Namespace) -> int:
    from service.supervisor import Supervisor  # a heavier import than `--help` should wait for

    flags = {name: value for name, value in vars(arguments).items() if name not in ("command", "run")}
    options = settings.load(flags)
    logs.configure(options.log_level, options.log_format)
    return Supervisor(options, on_ready=lambda address: print(_welcome(address), flush=True)).run()


def _welcome(address: str) -> str:
    return (
        f"\nPortcullis {__version__} is ready on {address}\n"
        f"  try     curl --data-binary @photo.jpg {address}/v1/predict\n"
        f"  see     {address}/ (console), {address}/docs (API)\n"
        "  stop    Ctrl-C\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of the console script; an error that is ours is one clear line, without a trace."""
    parsed = build_parser().parse_args(arguments)
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
