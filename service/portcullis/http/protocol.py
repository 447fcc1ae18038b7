"""HTTP/1.1 of one connection: uvicorn's, with clocks on slow clients, bounds on what nobody reads and a short way out
for a flood.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from portcullis.errors import BadRequest, HeadersTooLarge, RequestTimeout, ServiceError
from portcullis.http.connection import EXTENSION, Connection, Header, WholeResponse, bytes_of

FIRST_REQUEST_SECONDS = 0.5
SMALL_BODY_BYTES = 65536
MAX_HEADER_BYTES = 65536
# Who is answered before all of the body has come is listened to a little longer, without keeping anything: a connection
# that is closed on a client that still sends is reset, and the answer may be lost with it.
LINGER_BYTES = 16 * 1024 * 1024
LINGER_SECONDS = 5.0

_NO_TRAILERS: deque[Header] = deque(maxlen=0)


def _no_flood(target: bytes, headers: list[Header]) -> WholeResponse | None:
    return None


def _no_headers(request_headers: Iterable[Header]) -> Iterable[Header]:
    return ()


class Stage(Enum):
    """What of a request the server waits for."""

    NOTHING = 0
    HEADERS = 1
    BODY = 2


class GuardedProtocol(HttpToolsProtocol):
    """Gives a client a limited time for its headers and its body; a request in one piece needs no clock.

    What a route reads is for the route to bound. Bounded here is what it does not: headers, trailers, the framing of
    chunks, and a body that goes on after the answer.
    """

    header_timeout_seconds = 10.0
    body_timeout_seconds = 30.0
    is_draining = False
    turn_away: Callable[[bytes, list[Header]], WholeResponse | None] = staticmethod(_no_flood)
    """Given a POST's target and headers, the answer to give with nothing else done, if that is all it can get."""
    cross_origin: Callable[[Iterable[Header]], Iterable[Header]] = staticmethod(_no_headers)
    """Given a request's headers, those by which a page of another origin may read its answer."""
    _refusal: WholeResponse | None = None
    _clock: asyncio.TimerHandle | None = None
    _stage = Stage.NOTHING
    _had_request = False
    _is_body_moving = False
    _idle_bytes = 0
    """Bytes that came since the request or its body last got on: of headers, trailers or the framing of chunks."""
    _unread_bytes = 0
    """Bytes of a body that came after the answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_clock(self.header_timeout_seconds)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._stage is Stage.NOTHING:
            if self.cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is None:
                self._await_next_request()  # an empty line between two requests must not stop the clock for good
            return
        if self.transport.is_closing():
            return
        self._idle_bytes = 0 if self._is_body_moving else self._idle_bytes + len(data)
        self._is_body_moving = False
        if self._idle_bytes > MAX_HEADER_BYTES:
            self._give_up(HeadersTooLarge(f"expected at most {MAX_HEADER_BYTES} bytes of headers, got more than that"))
        elif self._clock is None:
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
        self._had_request = self._is_body_moving = True
        self._unread_bytes = 0
        if self._is_plain_post():
            self._refusal = self.turn_away(self.url, self.headers)
            if self._refusal is not None:
                return
        super().on_headers_complete()
        if self.is_draining:
            self.cycle.keep_alive = False
        self.scope["extensions"] = {EXTENSION: {"connection": Connection(self.cycle)}}
        self.headers = _NO_TRAILERS  # type: ignore[assignment]  # the scope has its own hold on the real ones

    def on_body(self, body: bytes) -> None:
        self._is_body_moving = True
        if self._refusal is not None:
            return
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > LINGER_BYTES:
                self.transport.close()
        else:
            super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._stage is Stage.BODY and self._is_lingering():
            self._unset_keepalive_if_required()
            self._stop_clock()
            self._start_clock(LINGER_SECONDS)

    def _is_lingering(self) -> bool:
        """Whether a request has its answer while its body still comes."""
        if self._stage is not Stage.BODY or self._refusal is not None or self.cycle is None:
            return False
        return self.cycle.response_complete

    def on_message_complete(self) -> None:
        self._stop_clock()
        if self._is_lingering():
            self._await_next_request()
        self._stage = Stage.NOTHING
        if self._refusal is None:
            super().on_message_complete()
            return
        keep_alive = self.parser.should_keep_alive() and not self.is_draining
        self.transport.write(bytes_of(self._refusal, self.server_state.default_headers, keep_alive))
        self._refusal = None
        if not keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _await_next_request(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

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
        if not self.transport.is_closing():
            self._give_up(RequestTimeout("the request took too long to arrive"))

    def _give_up(self, error: ServiceError) -> None:
        """Say why, unless the client has its answer already or is about to get it."""
        is_answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if is_answering or self._is_lingering():
            self.transport.close()
        else:
            self._refuse(error)

    def _refuse(self, error: ServiceError) -> None:
        body = orjson.dumps({"error": {"code": error.code, "message": str(error), "request_id": None}})
        own = self.cross_origin(self.scope["headers"] if self.scope else ())
        answer = WholeResponse(int(error.status), ((b"content-type", b"application/json"), *own), body)
        self.transport.write(bytes_of(answer, [], keep_alive=False))
        self.transport.close()
