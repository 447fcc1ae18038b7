"""How a command reaches a running service: flags, then PORTCULLIS_URL and PORTCULLIS_API_KEY, then the default."""

import argparse

from portcullis.client import AsyncClient, Client
from portcullis.client.calls import Choice
from portcullis.client.configuration import DEFAULT_URL
from portcullis.environment import client_defaults


def add_flags(parser: argparse.ArgumentParser, below_another: bool = False) -> None:
    """`below_another`: an action whose command has the same flags; what was given there must not be forgotten."""
    group = parser.add_argument_group("service")
    url = f"address of the service (default: PORTCULLIS_URL, or {DEFAULT_URL})"
    key = "key, where one is wanted (default: PORTCULLIS_API_KEY)"
    unset = argparse.SUPPRESS if below_another else None
    group.add_argument("--url", metavar="URL", default=unset, help=url)
    group.add_argument("--key", metavar="SECRET", default=unset, help=key)
    timeout = argparse.SUPPRESS if below_another else 30.0
    group.add_argument(
        "--timeout", type=float, default=timeout, metavar="X", help="seconds for an answer (default: 30)"
    )


def add_choice_flags(parser: argparse.ArgumentParser) -> None:
    """Which model and which gate answers."""
    parser.add_argument("--model", metavar="NAME", help="model (default: the service's default)")
    parser.add_argument("--model-version", type=int, metavar="N", help="version (default: the model's default)")
    gate = parser.add_mutually_exclusive_group()
    gate.add_argument(
        "--operating-point", metavar="POINT", help="gate of these images, such as accept99 or accept95+right99"
    )
    gate.add_argument("--threshold", type=float, metavar="X", help="gate of these images, as an absolute score")


def choice_of(arguments: argparse.Namespace) -> Choice:
    given = {
        "model": arguments.model,
        "version": arguments.model_version,
        "operating_point": arguments.operating_point,
        "threshold": arguments.threshold,
    }
    return {name: value for name, value in given.items() if value is not None}  # type: ignore[return-value]


def client_of(arguments: argparse.Namespace) -> Client:
    return Client(*_address(arguments), timeout_seconds=arguments.timeout)


def async_client_of(arguments: argparse.Namespace) -> AsyncClient:
    return AsyncClient(*_address(arguments), timeout_seconds=arguments.timeout)


def _address(arguments: argparse.Namespace) -> tuple[str, str | None]:
    url, key = client_defaults()
    return arguments.url or url or DEFAULT_URL, arguments.key or key
