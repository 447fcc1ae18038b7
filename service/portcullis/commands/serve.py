"""`portcullis serve`: the one command that needs more than the client's packages, and says so where they lack."""

import argparse
import sys
from importlib.util import find_spec
from typing import Any

from portcullis import __version__
from portcullis.commands.extras import server_packages
from portcullis.errors import PortcullisError

EXAMPLES = """examples:
  portcullis serve                                   serve the newest version of every bundle in models/
  portcullis serve --gate accept99 --port 9000       reject less: at most 1 % of familiar images
  portcullis serve --config portcullis.toml          settings from a file
  PORTCULLIS_ADMIN_KEYS=me:a-long-secret portcullis serve   with the admin routes on

every setting is a flag, a PORTCULLIS_* variable and a key of the TOML file; flags win, then variables, then the file.
"""


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve bundles over HTTP",
        description="Serve the bundles of a models directory over HTTP.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    try:
        with server_packages("portcullis serve"):
            from portcullis.commands.settings_sources import add_flags
    except PortcullisError as error:
        parser.description += f"\n\nNot here: {error}"
        parser.set_defaults(passes_over_flags=True)  # what they mean cannot be known; `run` says why
    else:
        add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    if sys.platform != "linux":
        raise PortcullisError(f"the server needs Linux, this is {sys.platform}; the client runs here")
    with server_packages("portcullis serve"):
        from portcullis.commands.settings_sources import load
        from portcullis.processes.supervisor import Supervisor
        from portcullis.telemetry import logs

        if find_spec("onnxruntime") is None:  # loaded by the workers only
            raise ModuleNotFoundError(name="onnxruntime")
    options = load({name: value for name, value in vars(arguments).items() if name not in ("command", "parser", "run")})
    logs.configure(options.log_level, options.log_format)
    return Supervisor(options, on_ready=lambda address: print(_welcome(address), flush=True)).run()


def _welcome(address: str) -> str:
    return (
        f"\nPortcullis {__version__} is ready on {address}\n"
        f"  try     curl --data-binary @photo.jpg {address}/v1/predict\n"
        f"  see     {address}/ (console), {address}/docs (API)\n"
        "  stop    Ctrl-C\n"
    )
