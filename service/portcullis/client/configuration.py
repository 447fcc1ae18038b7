"""What both clients are made from: address, key, time limits, retries."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypedDict

import httpx

from portcullis import __version__
from portcullis.client import calls
from portcullis.client.calls import Call, Choice, Image
from portcullis.client.retries import Conversation, Retries, converse_batch
from portcullis.schemas.answers import BatchEntry

DEFAULT_URL = "http://127.0.0.1:8000"
LONG_SECONDS = 3600.0
"""The longest silence before the answer of a call that takes minutes."""


class Options(TypedDict, total=False):
    """The fields of `Configuration` that have a good default."""

    timeout_seconds: float
    connect_timeout_seconds: float
    retries: Retries
    max_batch_files: int
    max_batch_bytes: int


@dataclass(frozen=True)
class Configuration:
    """How to talk to one service."""

    url: str = DEFAULT_URL
    key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 30.0
    """The longest silence of the service within one attempt, but for calls that take minutes."""
    connect_timeout_seconds: float = 5.0
    retries: Retries = field(default_factory=Retries)
    max_batch_files: int = 64
    """Files in one batch request; the service's own default."""
    max_batch_bytes: int = 60 * 1024 * 1024
    """Bytes in one batch request; leaves room for the form within the service's default."""

    def connection(self) -> dict[str, Any]:
        """Keyword arguments for an httpx client."""
        headers = {"user-agent": f"portcullis/{__version__}"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        timeout = httpx.Timeout(self.timeout_seconds, connect=self.connect_timeout_seconds)
        return {"base_url": self.url, "headers": headers, "timeout": timeout}

    def request(self, call: Call[Any]) -> dict[str, Any]:
        """Keyword arguments for the `request` of that client."""
        if not call.takes_minutes:
            return call.arguments()
        silence = max(LONG_SECONDS, self.timeout_seconds)
        timeout = httpx.Timeout(self.timeout_seconds, connect=self.connect_timeout_seconds, read=silence)
        return {**call.arguments(), "timeout": timeout}

    def batch(self, images: Iterable[Image], choice: Choice) -> Conversation[list[BatchEntry]]:
        files = [calls.read_image(image) for image in images]
        return converse_batch(files, choice, self.max_batch_files, self.max_batch_bytes, self.retries)
