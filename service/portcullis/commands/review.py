"""`portcullis review`: look through the images that a service has kept, say what they are, export them."""

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from portcullis.client import Client
from portcullis.client.export import export_review
from portcullis.commands import connection
from portcullis.commands.tables import number, print_json, print_table
from portcullis.errors import PortcullisError
from portcullis.schemas.review import ReviewItem, State

HEADER = ("id", "created", "model", "answer", "p-value", "verdict", "seen", "state")
MIN_TRAINING_IMAGES = 40
"""Fewer cannot be held out four ways and leave each label something to be learned from."""
EXAMPLES = """examples:
  portcullis review list --verdict reject --state open    what was rejected, the strangest first
  portcullis review image 6f1d0c2b9a7e4f35 --out a.png    look at one
  portcullis review label 6f1d0c2b9a7e4f35 cat            say what it is
  portcullis review dismiss 6f1d0c2b9a7e4f35              of no use
  portcullis review export new-images/                    labelled ones, a folder a label
  portcullis-train run --recipe photos --data folder:new-images/ --name mine    train on them, as `export` says

all of it needs an admin key (--key or PORTCULLIS_API_KEY) and a service started with --review-enabled.
"""


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "review",
        help="look through, label, dismiss or export the images kept for review",
        description="The review queue of a running service.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(required=True, metavar="action")
    listing = _action(actions, "list", "list items, the strangest first", _list)
    listing.add_argument("--model", metavar="NAME")
    listing.add_argument("--label", metavar="LABEL", help="what the service answered")
    listing.add_argument("--verdict", choices=("accept", "reject"))
    listing.add_argument("--state", choices=get_args(State))
    listing.add_argument("--limit", type=int, default=20, metavar="N", help="items at the most (default: 20)")
    listing.add_argument("--json", action="store_true", help="print JSON, one object an item")
    image = _action(actions, "image", "save the image of one item", _image)
    image.add_argument("item", metavar="ID")
    image.add_argument("--out", type=Path, required=True, metavar="FILE")
    label = _action(actions, "label", "say what items show", _label)
    label.add_argument("items", nargs="+", metavar="ID")
    label.add_argument("label", metavar="LABEL")
    for name, text in (("dismiss", "say that items are of no use"), ("reopen", "take a label or dismissal back")):
        _action(actions, name, text, _dismiss if name == "dismiss" else _reopen).add_argument(
            "items", nargs="+", metavar="ID"
        )
    export = _action(actions, "export", "write labelled images as DIR/<label>/<id>.<ext>", _export)
    export.add_argument("directory", type=Path, metavar="DIR")
    export.add_argument("--model", metavar="NAME", help="only items of this model")


def _action(
    actions: Any, name: str, text: str, act: Callable[[Client, argparse.Namespace], None]
) -> argparse.ArgumentParser:
    def run(arguments: argparse.Namespace) -> int:
        with connection.client_of(arguments) as client:
            act(client, arguments)
        return 0

    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text.capitalize() + ".")
    connection.add_flags(parser)
    parser.set_defaults(run=run)
    return parser


def _list(client: Client, arguments: argparse.Namespace) -> None:
    given = {name: getattr(arguments, name) for name in ("model", "label", "verdict", "state")}
    page = client.review(limit=arguments.limit, **{name: value for name, value in given.items() if value})
    if arguments.json:
        for item in page.items:
            print_json(item.model_dump(mode="json"))
        return
    print_table(HEADER, map(_line, page.items))
    if page.num_items > len(page.items):
        print(f"… and {page.num_items - len(page.items)} more")


def _line(item: ReviewItem) -> tuple[str, ...]:
    state = item.state if item.true_label is None else f"{item.state}: {item.true_label}"
    return (
        item.id,
        f"{item.created:%Y-%m-%d %H:%M}",
        f"{item.model}/{item.version}",
        f"{item.label} ({number(item.probability, 2)})",
        number(item.p_value),
        item.verdict,
        str(item.num_seen),
        state,
    )


def _image(client: Client, arguments: argparse.Namespace) -> None:
    arguments.out.write_bytes(client.review_image(arguments.item))


def _label(client: Client, arguments: argparse.Namespace) -> None:
    for item in arguments.items:
        client.label_review(item, arguments.label)


def _dismiss(client: Client, arguments: argparse.Namespace) -> None:
    for item in arguments.items:
        client.dismiss_review(item)


def _reopen(client: Client, arguments: argparse.Namespace) -> None:
    for item in arguments.items:
        client.reopen_review(item)


def _export(client: Client, arguments: argparse.Namespace) -> None:
    try:
        counts = export_review(client, arguments.directory, arguments.model)
    except OSError as error:
        raise PortcullisError(f"cannot write to {arguments.directory}: {error.strerror}") from None
    print_table(("label", "images"), [(label, str(count)) for label, count in sorted(counts.items())])
    print(_next_step(arguments.directory, counts))


def _next_step(directory: Path, counts: dict[str, int]) -> str:
    """The command that trains on the export."""
    if len(counts) < 2 or sum(counts.values()) < MIN_TRAINING_IMAGES:
        return f"to train on them, label at least {MIN_TRAINING_IMAGES} images of two labels or more"
    data = shlex.quote(f"folder:{directory}")
    return f"train on them with: portcullis-train run --recipe photos --data {data} --name reviewed"
