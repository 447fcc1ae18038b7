"""The variables of this process, and the only reader of them: which are the server's, the client's, a worker's.

It knows no setting: what a variable of the server means, and whether it exists, is said where settings are merged.
"""

import os
import re
from collections.abc import Mapping

PREFIX = "PORTCULLIS_"
FOREIGN = ("URL", "API_KEY", "DATA")
"""Variables with our prefix that are not the server's: two of the client, one of training."""
_SERVICE_LINK = re.compile(r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


def client_defaults() -> tuple[str | None, str | None]:
    """Address and key for the commands that talk to a running service: PORTCULLIS_URL, PORTCULLIS_API_KEY."""
    return os.environ.get(f"{PREFIX}URL"), os.environ.get(f"{PREFIX}API_KEY")


def server_variables(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What is meant for the server, by the name of the setting; of this process if no other environment is given."""
    environment = os.environ if environment is None else environment
    ours = {name.removeprefix(PREFIX): value for name, value in environment.items() if name.startswith(PREFIX)}
    return {name.lower(): value for name, value in ours.items() if not _is_foreign(name, value)}


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker: ours less our own variables, which it gets through its pipe, plus `extra`.

    A worker looks for no module in the current directory, where a person's own `portcullis.py` may lie.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return inherited | {"PYTHONSAFEPATH": "1"} | dict(extra)


def put_variable(name: str, value: str) -> None:
    """Tell a library of this process what it takes from nowhere else."""
    os.environ[name] = value


def visible_devices() -> list[str] | None:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves this process, in its own words; none where it says nothing."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _is_foreign(name: str, value: str) -> bool:
    """Also what Kubernetes puts into every pod of a namespace that has a Service named portcullis or portcullis-…:
    PORTCULLIS_SERVICE_HOST and the like, and PORTCULLIS_PORT with an address instead of a number."""
    is_link = _SERVICE_LINK.fullmatch(name) or (name.endswith("PORT") and _ADDRESS.match(value))
    return name in FOREIGN or bool(is_link)
