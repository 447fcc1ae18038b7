"""`portcullis models` and `portcullis gate`: see what is served, and change it with an admin key."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from portcullis.client import Client
from portcullis.commands import bundles, connection
from portcullis.commands.tables import number, print_json, print_table
from portcullis.errors import PortcullisError
from portcullis.schemas.answers import ModelInfo, VersionInfo
from portcullis.schemas.changes import ModelChanged
from portcullis.schemas.gates import GateInfo
from portcullis.schemas.models import WorkerBehind

HEADER = ("model", "version", "role", "labels", "accuracy", "gate", "threshold", "runs on")
MODELS_EXAMPLES = """examples:
  portcullis models                                   what is served
  portcullis models --json | jq .versions[].figures   everything that is known of it
  portcullis models load pets 2                       serve version 2 beside the default
  portcullis models shadow pets 2 0.1                 show it a tenth of the traffic, unseen
  portcullis models promote pets                      let the shadow answer from now on
  portcullis models drop pets                         or forget it
  portcullis models swap pets 1                       back to version 1, and stay there
  portcullis models unload pets 2                     stop serving a version
  portcullis models rescan                            look for new bundles now

all of these but the first two need an admin key. Bundles themselves, without a service:

"""
GATE_EXAMPLES = """examples:
  portcullis gate                                               the gate of the default model
  portcullis gate pets --set accept97.5 --key SECRET       reject at most 2.5 % of familiar images
  portcullis gate pets --set accept95+right95              and be right in what passes of them
  portcullis gate pets --threshold -2.5                    an absolute score; the key from PORTCULLIS_API_KEY
"""


def add_commands(commands: Any) -> None:
    parser = _parser(
        commands, "models", "list, load, swap, shadow, unload, push or pull models", MODELS_EXAMPLES + bundles.EXAMPLES
    )
    _flags(parser)
    parser.set_defaults(run=lambda arguments: _with_client(arguments, _list))
    actions = parser.add_subparsers(metavar="action")
    _action(actions, "load", lambda client, a: _show(client.load(a.name, a.version), a), _name, _version)
    _action(actions, "swap", lambda client, a: _show(client.swap(a.name, a.version), a), _name, _optional_version)
    _action(
        actions, "unload", lambda client, a: _warn(client.unload(a.name, a.version).behind), _name, _optional_version
    )
    _action(
        actions,
        "shadow",
        lambda client, a: _show(client.start_shadow(a.name, a.version, a.share), a),
        _name,
        _version,
        _share,
    )
    _action(actions, "promote", lambda client, a: _show(client.promote_shadow(a.name), a), _name)
    _action(actions, "drop", lambda client, a: _show(client.drop_shadow(a.name), a), _name)
    _action(actions, "rescan", _rescan)
    bundles.add_actions(actions)
    gate = _parser(commands, "gate", "show or change the gate of a running service", GATE_EXAMPLES)
    gate.add_argument("name", nargs="?", metavar="NAME", help="model (default: the service's default)")
    change = gate.add_mutually_exclusive_group()
    change.add_argument(
        "--set",
        dest="operating_point",
        metavar="POINT",
        help="such as accept97.5, accept95:by-class, accept95+right99 or mmles:accept95",
    )
    change.add_argument("--threshold", type=float, metavar="X", help="an absolute score")
    _flags(gate)
    gate.set_defaults(run=lambda arguments: _with_client(arguments, _gate))


def _parser(commands: Any, name: str, text: str, examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text.capitalize() + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def _flags(parser: argparse.ArgumentParser, below_another: bool = False) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    connection.add_flags(parser, below_another)


def _action(
    actions: Any,
    name: str,
    act: Callable[[Client, argparse.Namespace], None],
    *parameters: Callable[[argparse.ArgumentParser], None],
) -> None:
    parser = actions.add_parser(name)
    for add in parameters:
        add(parser)
    _flags(parser, below_another=True)
    parser.set_defaults(run=lambda arguments: _with_client(arguments, act))


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")


def _version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", type=int, metavar="VERSION")


def _optional_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", type=int, nargs="?", metavar="VERSION")


def _share(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("share", type=float, metavar="SHARE", help="of the live traffic, such as 0.1")


def _with_client(arguments: argparse.Namespace, act: Callable[[Client, argparse.Namespace], None]) -> int:
    with connection.client_of(arguments) as client:
        act(client, arguments)
    return 0


# -- what they do ----------------------------------------------------------------------------------------------------


def _list(client: Client, arguments: argparse.Namespace) -> None:
    models = client.models()
    if arguments.json:
        for model in models:
            print_json(model.model_dump(mode="json"))
    else:
        print_table(HEADER, [_line(model, version) for model in models for version in model.versions])


def _show(model: ModelChanged, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(model.model_dump(mode="json"))
    else:
        print_table(HEADER, [_line(model, version) for version in model.versions])
        _warn(model.behind)


def _warn(behind: list[WorkerBehind]) -> None:
    """The change is made; whoever has not followed yet does so by itself."""
    for worker in behind:
        who = f"worker {worker.worker} of {worker.instance}" if worker.worker is not None else "nobody knows who"
        print(f"{who} has not followed yet: {worker.reason}", file=sys.stderr)


def _line(model: ModelInfo, version: VersionInfo) -> tuple[str, ...]:
    is_shadow = model.shadow is not None and model.shadow.version == version.version
    role = "default" if version.version == model.default_version else "shadow" if is_shadow else "beside"
    pinned = ", pinned" if role == "default" and model.is_pinned else ""
    return (
        model.name,
        str(version.version),
        role + pinned,
        str(len(version.labels)),
        f"{100 * version.figures.accuracy:.2f} %",
        version.gate.operating_point or "threshold",
        _threshold(version.gate),
        version.providers[0],
    )


def _rescan(client: Client, arguments: argparse.Namespace) -> None:
    result = client.rescan()
    if arguments.json:
        print_json(result.model_dump(mode="json"))
        return
    print("adopted: " + (", ".join(result.adopted) or "nothing new"))
    for refused in result.refused:
        print(f"refused: {refused.model}/{refused.version}: {refused.reason}")
    _warn(result.behind)


def _gate(client: Client, arguments: argparse.Namespace) -> None:
    name = arguments.name or _default_name(client)
    if arguments.operating_point is None and arguments.threshold is None:
        info = client.gate(name)
    else:
        info = client.set_gate(name, arguments.operating_point, threshold=arguments.threshold)
        _warn(info.behind)
    if arguments.json:
        print_json(info.model_dump(mode="json"))
    else:
        print(_sentence(info))


def _default_name(client: Client) -> str:
    for model in client.models():
        if model.is_default:
            return model.name
    raise PortcullisError("the service serves no model")


def _threshold(info: GateInfo) -> str:
    return "by class" if info.class_thresholds is not None else number(info.threshold)


def _sentence(info: GateInfo) -> str:
    rules = []
    if info.class_thresholds is not None:
        low, high = min(info.class_thresholds.values()), max(info.class_thresholds.values())
        rules.append(f"accepts {info.score} scores from {low:.4f} to {high:.4f}, by the answered class")
    if info.threshold is not None:
        rules.append(f"accepts {info.score} scores from {info.threshold:.4f}")
    if info.right is not None:
        rules.append(f"answers from a probability of {info.min_probability:.4f}")
    most = "at most " if info.operating_point is not None and info.right is None else ""
    if info.expected_rejected_share is not None:
        within = " of each answered class" if most and info.class_thresholds is not None else ""
        rules.append(f"rejects {most}{100 * info.expected_rejected_share:.3g} % of familiar images{within}")
    if info.right is not None:
        rules.append(
            f"what passes of them is right at least {100 * (1 - info.right.risk):.4g} % of the time, "
            f"with {100 * info.right.confidence:.3g} % confidence"
        )
    return f"{info.model}/{info.version}: {info.operating_point or 'a threshold of its own'}, " + "; ".join(rules)
