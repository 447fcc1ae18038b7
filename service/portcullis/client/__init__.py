"""The Python client: `from portcullis.client import Client, AsyncClient`. Imports nothing that serves."""

from portcullis.client.async_client import AsyncClient
from portcullis.client.calls import Image
from portcullis.client.failures import (
    Busy,
    ClientError,
    Failed,
    Refused,
    TimedOut,
    Unreachable,
    Unreadable,
)
from portcullis.client.retries import NO_RETRIES, Retries
from portcullis.client.sync_client import Client

__all__ = [
    "NO_RETRIES",
    "AsyncClient",
    "Busy",
    "Client",
    "ClientError",
    "Failed",
    "Image",
    "Refused",
    "Retries",
    "TimedOut",
    "Unreachable",
    "Unreadable",
]
