"""The command line: `portcullis-train <command>`, the only place that prints. What a command does is in commands/.

Exit codes: 0 done, 1 an error that the message explains, 130 interrupted.
"""

import argparse
import errno
import logging
import sys

from portcullis.errors import PortcullisError
from portcullis_training.commands import (
    ablate,
    answers,
    calibrate,
    check_data,
    compare,
    evaluate,
    export,
    figures,
    fit,
    host,
    pack,
    page,
    recipes,
    run,
    torchrun,
    trial,
)
from portcullis_training.commands.parser import Parser, parse

COMMANDS = (
    run, check_data, trial, fit, calibrate, evaluate, export, answers, ablate, compare, page, figures, pack, recipes,
)  # fmt: skip

EXAMPLES = """\
examples:
  portcullis-train recipes                                    what can be trained
  portcullis-train run --recipe photos --data folder:my-photos    your own photos, a class a folder, in minutes
  portcullis-train run --recipe digits                        the whole line, in under two minutes
  portcullis-train fit --recipe cifar10-whitened --data npz:train.npz,test.npz --epochs 10 --name short
  portcullis-train fit --resume runs/short                    go on after Ctrl-C or a crash
  portcullis-train calibrate runs/short                       each stage again, alone
  torchrun --nproc-per-node 4 -m portcullis_training fit --recipe cifar10-wrn-28-10
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; every error that a person can put right is one line."""
    host.settle()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("portcullis_training").setLevel(logging.INFO)
    try:
        namespace = parse(build_parser(), sys.argv[1:] if arguments is None else arguments)
        namespace.work(namespace, _say)
    except PortcullisError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except argparse.ArgumentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "portcullis").startswith("portcullis"):  # our own mistake, not a missing package
            raise
        extras = "pip install 'portcullis[cpu,training]', or [gpu,training] on a machine with an NVIDIA GPU"
        print(f"error: {error.name} is missing: {extras}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"error: the disk is full: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        if torchrun.is_main():
            print(f"\ninterrupted{f': {error}' if str(error) else ''}", file=sys.stderr)
        return 130
    return 0


def build_parser() -> Parser:
    """The commands and their flags."""
    parser = Parser(prog="portcullis-train", description="From images to a verified bundle.", epilog=EXAMPLES)
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        command.add_command(commands)
    return parser


def _say(line: str) -> None:
    if torchrun.is_main():
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
