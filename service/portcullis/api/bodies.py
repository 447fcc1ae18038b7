"""How many bytes of bodies a worker holds at a time, whoever sends them: beyond a limit 503 rather than more memory.

Small bodies are not counted: the number of connections bounds them, and they are nearly all that come.
"""

from collections.abc import MutableMapping
from typing import Any

from portcullis.api.requests import Receive, Scope, header
from portcullis.errors import Overloaded
from portcullis.http.protocol import SMALL_BODY_BYTES
from portcullis.settings import Settings

AUTO_BODIES = 4


def max_bytes(settings: Settings) -> int:
    """The limit of one worker."""
    return settings.max_bodies_bytes or AUTO_BODIES * max(settings.max_batch_bytes, 2 * settings.max_body_bytes)


class Bodies:
    """All that one worker holds."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.num_bytes = 0

    def take(self, num_bytes: int) -> None:
        """Count bytes that have come; they are counted until they are released, also where this refuses."""
        self.num_bytes += num_bytes
        if self.num_bytes > self._max_bytes:
            raise Overloaded(f"bodies of {self._max_bytes} bytes are held already; try again in a moment")


class Held:
    """What came of one request's body; `release` once it is answered."""

    __slots__ = ("_bodies", "_num_bytes", "_receive")

    def __init__(self, bodies: Bodies, receive: Receive) -> None:
        self._bodies, self._receive, self._num_bytes = bodies, receive, 0

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        num_bytes = len(message.get("body", b""))
        self._num_bytes += num_bytes
        self._bodies.take(num_bytes)
        return message

    def release(self) -> None:
        self._bodies.num_bytes -= self._num_bytes


def is_small(scope: Scope) -> bool:
    """Whether a body is announced that comes in one piece, or none."""
    length = header(scope, b"content-length")
    if length is None:
        return header(scope, b"transfer-encoding") is None
    return length.isdigit() and int(length) <= SMALL_BODY_BYTES
