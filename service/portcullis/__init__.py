"""Portcullis: an image-classification server that knows when not to answer.

`from portcullis import Client, AsyncClient`. Both are imported when they are asked for, so that a room like
`portcullis.bundle` stays light for whoever wants nothing else.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from portcullis.client import AsyncClient, Client

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("AsyncClient", "Client"):
        return getattr(importlib.import_module("portcullis.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
