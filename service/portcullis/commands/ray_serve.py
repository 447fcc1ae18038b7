"""`portcullis ray-serve`: replicas of the service on a Ray cluster, for those who have one and no Kubernetes."""

import argparse
import contextlib
import threading
from typing import Any

from portcullis import __version__
from portcullis.commands.extras import ray_packages, server_packages
from portcullis.errors import PortcullisError

EXAMPLES = """examples:
  portcullis ray-serve --models s3://bundles --replicas 4 --address auto      on the cluster that this machine is in
  portcullis ray-serve                                                        one replica, on a cluster of its own
  portcullis ray-serve --replicas 8 --own-port 9000    each replica also listens itself, at 9000 and on

several replicas need PORTCULLIS_DATABASE. Settings are those of `portcullis serve`; host and port are of Ray's front.
"""
_PLAN = ("replicas", "cpus_per_replica", "gpus_per_replica", "own_port")


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "ray-serve",
        help="serve bundles from replicas on a Ray cluster",
        description="Serve from replicas on a Ray cluster, until Ctrl-C.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    try:
        with server_packages("portcullis ray-serve"):
            from portcullis.commands.settings_sources import add_flags
    except PortcullisError as error:
        parser.description += f"\n\nNot here: {error}"
        parser.set_defaults(passes_over_flags=True)
        return
    parser.add_argument("--address", metavar="HOST:PORT", help="Ray cluster; auto: the one this machine is in")
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="processes, an engine each (default: 1)")
    parser.add_argument("--cpus-per-replica", type=float, default=1.0, metavar="X", help="(default: 1)")
    parser.add_argument("--gpus-per-replica", type=float, default=0.0, metavar="X", help="(default: 0)")
    parser.add_argument("--own-port", type=int, metavar="N", help="replicas of a machine also listen at N, N+1, …")
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    with server_packages("portcullis ray-serve"):
        from portcullis.commands.settings_sources import load
        from portcullis.telemetry import logs
    with ray_packages("portcullis ray-serve"):
        from portcullis.commands.on_ray.serving import Plan, deployed
    given = vars(arguments)
    plan = Plan(**{name: given[name] for name in _PLAN})
    flags = {name: given[name] for name in given.keys() - {"command", "parser", "run", "address", *_PLAN}}
    settings = load(flags)
    logs.configure(settings.log_level, settings.log_format)
    address = f"{'https' if settings.tls_certificate_file else 'http'}://{settings.host}:{settings.port}"
    with contextlib.suppress(KeyboardInterrupt), deployed(settings, plan, arguments.address):
        print(f"\nPortcullis {__version__} is ready on {address} with {plan.replicas} replicas", flush=True)
        threading.Event().wait()
    return 0
