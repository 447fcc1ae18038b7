"""The Python client: `from service.client import Client, AsyncClient`. Imports nothing that serves."""

from service.client.async_client import AsyncClient
from service.client.calls import Image
from service.client.failures import Busy, ClientError, Failed, Refused, TimedOut, Unreachable, Unreadable
from service.client.retries import NO_RETRIES, Retries
from service.client.sync_client import Client

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
