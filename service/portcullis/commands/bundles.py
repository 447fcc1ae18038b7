"""`portcullis models push, pull, keygen, sign`: bundles between here and where they are kept. No service is asked."""

import argparse
from pathlib import Path
from typing import Any

EXAMPLES = """  portcullis models push models/pets/2 s3://bucket/models    take a bundle to where services fetch it
  portcullis models pull s3://bucket/models pets@2           and from there, verified (default: to models/)
  portcullis models keygen release.pem                       a key that signs bundles; prints its public half
  portcullis models sign models/pets/2 --private-key release.pem
"""


def add_actions(actions: Any) -> None:
    push = _action(actions, "push", _push, "take a bundle to a URL")
    push.add_argument("bundle", type=Path, metavar="BUNDLE", help="models/<name>/<version>")
    push.add_argument("url", metavar="URL", help="s3://, gs://, az:// or hf:// with a path, or models:/name of MLflow")
    pull = _action(actions, "pull", _pull, "fetch bundles from a URL into a models directory")
    pull.add_argument("url", metavar="URL")
    pull.add_argument("names", nargs="*", metavar="NAME[@VERSION]", help="default: the newest version of every name")
    pull.add_argument("--to", type=Path, default=Path("models"), metavar="DIRECTORY", help="default: models")
    pull.add_argument("--trust", action="append", default=[], metavar="KEY", help="public key that has to sign them")
    keygen = _action(actions, "keygen", _keygen, "make a key that signs bundles")
    keygen.add_argument("file", type=Path, metavar="FILE", help="where the private key goes; must not exist")
    sign = _action(actions, "sign", _sign, "sign a bundle")
    sign.add_argument("bundle", type=Path, metavar="BUNDLE", help="models/<name>/<version>")
    sign.add_argument("--private-key", type=Path, required=True, metavar="FILE", help="as keygen wrote it")


def _action(actions: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text.capitalize() + ".")
    parser.set_defaults(run=run)
    return parser


def _push(arguments: argparse.Namespace) -> int:
    from portcullis.bundle.sources.moving import push

    label, is_new = push(arguments.bundle, arguments.url)
    print(f"{label} is at {arguments.url}" if is_new else f"{label} is at {arguments.url} already")
    return 0


def _pull(arguments: argparse.Namespace) -> int:
    from portcullis.bundle.signatures import Trust
    from portcullis.bundle.sources.moving import pull

    for label in pull(arguments.url, arguments.names, arguments.to, Trust(arguments.trust)):
        print(f"{arguments.to / label}")
    return 0


def _keygen(arguments: argparse.Namespace) -> int:
    from portcullis.bundle.signatures import make_key

    print(make_key(arguments.file))
    return 0


def _sign(arguments: argparse.Namespace) -> int:
    from portcullis.bundle.signatures import sign

    print(f"{arguments.bundle} is signed by {sign(arguments.bundle, arguments.private_key)}")
    return 0
