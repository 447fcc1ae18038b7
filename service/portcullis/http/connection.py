"""One request's connection as the API sees it, through one ASGI extension, `portcullis`: {"connection": Connection}.

It tells whether the client has hung up, so that its work can be dropped without a task that waits for it, and takes a
whole answer in one write.
"""

from collections.abc import Iterable
from typing import NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

EXTENSION = "portcullis"

Header = tuple[bytes, bytes]


class WholeResponse(NamedTuple):
    """A whole answer, ready to be written."""

    status: int
    headers: Iterable[Header]
    body: bytes


class Connection:
    """What the server offers beyond ASGI."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def is_gone(self) -> bool:
        """Whether the client has hung up."""
        return self._cycle.disconnected

    @property
    def is_clear(self) -> bool:
        """Whether an answer may be written at once: the client reads, and has been sent nothing yet."""
        return not (self._cycle.flow.write_paused or self._cycle.response_started)

    def respond(self, answer: WholeResponse) -> None:
        """Write a whole answer at once; ASGI's two messages would cost two system calls."""
        cycle = self._cycle
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(bytes_of(answer, cycle.default_headers, cycle.keep_alive))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


def bytes_of(answer: WholeResponse, default_headers: list[Header], keep_alive: bool) -> bytes:
    parts = [STATUS_LINE[answer.status]]
    for name, value in (*default_headers, *answer.headers):
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"content-length: %d\r\n" % len(answer.body))
    parts.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    parts.append(answer.body)
    return b"".join(parts)
