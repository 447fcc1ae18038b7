"""HTTP/1.1 of one connection: uvicorn's, with clocks on slow clients and a short way out for a flood.

Known to the API through one ASGI extension, `portcullis`: {"connection": Connection}. It tells whether the client has
hung up, so that its work can be dropped without a task that waits for it, and takes a whole answer in one write.
"""

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.errors import BadRequest, RequestTimeout, ServiceError

EXTENSION = "portcullis"
FIRST_REQUEST_SECONDS = 0.5
SMALL_BODY_BYTES = 65536

Header = tuple[bytes, bytes]


class Answer(NamedTuple):
    """A whole answer, ready to be written."""

    status: int
    headers: Iterable[Header]
    body: bytes


def _no_flood(target: bytes, headers: list[Header]) -> Answer | None:
    return None


class Stage(Enum):
    """What of a request the server waits for."""

    NOTHING = 0
    HEADERS = 1
    BODY = 2


class Connection:
    """One request's connection, as the API sees it."""

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

    def respond(self, answer: Answer) -> None:
        """Write a whole answer at once; ASGI's two messages would cost two system calls."""
        cycle = self._cycle
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(_bytes_of(answer, cycle.default_headers, cycle.keep_alive))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


def _bytes_of(answer: Answer, default_headers: list[Header], keep_alive: bool) -> bytes:
    parts = [STATUS_LINE[answer.status]]
    for name, value in (*default_headers, *answer.headers):
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"content-length: %d\r\n" % len(answer.body))
    parts.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    parts.append(answer.body)
    return b"".join(parts)


class GuardedProtocol(HttpToolsProtocol):
    """Gives a client a limited time for its headers and its body; a request in one piece needs no clock."""

    header_timeout_seconds = 10.0
    body_timeout_seconds = 30.0
    is_draining = False
    turn_away: Callable[[bytes, list[Header]], Answer | None] = staticmethod(_no_flood)
    """Given a POST's target and headers, the answer to give with nothing else done, if that is all it can get."""
    _refusal: Answer | None = None
    _clock: asyncio.TimerHandle | None = None
    _stage = Stage.NOTHING
    _had_request = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_clock(self.header_timeout_seconds)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._stage is not Stage.NOTHING and self._clock is None:
            is_body = self._stage is Stage.BODY
            self._start_clock(self.body_timeout_seconds if is_body else self.header_timeout_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stage = Stage.HEADERS

    def on_headers_complete(self) -> None:
        self._stop_clock()
        self._stage = Stage.BODY
        self._had_request = True
        if self._is_plain_post():
            self._refusal = self.turn_away(self.url, self.headers)
            if self._refusal is not None:
                return
        super().on_headers_complete()
        if self.is_draining:
            self.cycle.keep_alive = False
        self.scope["extensions"] = {EXTENSION: {"connection": Connection(self.cycle)}}

    def on_body(self, body: bytes) -> None:
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_clock()
        self._stage = Stage.NOTHING
        if self._refusal is None:
            super().on_message_complete()
            return
        keep_alive = self.parser.should_keep_alive() and not self.is_draining
        self.transport.write(_bytes_of(self._refusal, self.server_state.default_headers, keep_alive))
        self._refusal = None
        if not keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _is_plain_post(self) -> bool:
        """Whether a request may be turned away: it stands alone, and its body is small and sure to come."""
        if self.parser.get_method() != b"POST" or self.expect_100_continue or self.flow.write_paused:
            return False
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        for name, value in self.headers:
            if name == b"content-length":
                return value.isdigit() and int(value) <= SMALL_BODY_BYTES
        return False

    def shutdown(self) -> None:
        """A connection that was taken a moment ago still gets its first answer."""
        if self._had_request:
            super().shutdown()
        else:
            self.loop.call_later(FIRST_REQUEST_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if not self._had_request and not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest("the request is not valid HTTP"))

    def _start_clock(self, seconds: float) -> None:
        self._clock = self.loop.call_later(seconds, self._time_is_up)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _time_is_up(self) -> None:
        self._clock = None
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self._refuse(RequestTimeout("the request took too long to arrive"))
        else:
            self.transport.close()

    def _refuse(self, error: ServiceError) -> None:
        body = orjson.dumps({"error": {"code": error.code, "message": str(error), "request_id": None}})
        answer = Answer(error.status.value, ((b"content-type", b"application/json"),), body)
        self.transport.write(_bytes_of(answer, [], keep_alive=False))
        self.transport.close()
