"""The HTTP server of a worker: uvicorn, with clocks on slow clients and a fair share of new connections.

Known to the API through one ASGI extension, `portcullis`: {"connection": Connection}. It tells whether the client has
hung up, so that its work can be dropped without a task that waits for it, and takes a whole answer in one write.
"""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.errors import BadRequest, RequestTimeout, ServiceError

EXTENSION = "portcullis"
FIRST_REQUEST_SECONDS = 0.5
ACCEPT_PAUSE_SECONDS = 0.001


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

    def respond(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Write a whole answer at once; ASGI's two messages would cost two system calls."""
        cycle = self._cycle
        if cycle.disconnected:
            return
        parts = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        parts.append(b"content-length: %d\r\n" % len(body))
        parts.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        parts.append(body)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(b"".join(parts))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


class GuardedProtocol(HttpToolsProtocol):
    """Gives a client a limited time for its headers and its body; a request in one piece needs no clock."""

    header_timeout_seconds = 10.0
    body_timeout_seconds = 30.0
    is_draining = False
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
        super().on_headers_complete()
        self._had_request = True
        if self.is_draining:
            self.cycle.keep_alive = False
        self.scope["extensions"] = {EXTENSION: {"connection": Connection(self.cycle)}}

    def on_message_complete(self) -> None:
        self._stop_clock()
        self._stage = Stage.NOTHING
        super().on_message_complete()

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
        head = (
            f"HTTP/1.1 {error.status.value} {error.status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class Server(uvicorn.Server):
    """Takes one new connection at a time from a socket that all workers share, so that a burst spreads over them."""

    def __init__(
        self, config: uvicorn.Config, max_connections: int, drain_seconds: float, on_drain: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._max_connections, self._drain_seconds, self._on_drain = max_connections, drain_seconds, on_drain
        self._listener: socket.socket | None = None
        self._is_listening = False
        self._joining: set[asyncio.Task[Any]] = set()

    @property
    def num_connections(self) -> int:
        return len(self.server_state.connections)

    def drain(self) -> None:
        """Say not ready; go on answering for a moment, closing each connection with its answer; then leave."""
        if GuardedProtocol.is_draining:
            return
        GuardedProtocol.is_draining = True
        self._on_drain()
        asyncio.get_running_loop().call_later(self._drain_seconds, self._leave)

    def _leave(self) -> None:
        """Take whoever has connected already, then close: later ones are refused at once rather than reset."""
        self._listen(False)
        if self._listener is not None:
            while self._accept_one():
                pass
            self._listener.close()
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM drains. SIGINT is for the supervisor: a terminal sends it to every process of the group."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.drain)
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit or not sockets:
            sys.exit(1)
        self._listener = sockets[0]
        self._listener.setblocking(False)
        self.servers = []
        self._listen(True)
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        self._listen_again()  # connections may have gone
        return await super().on_tick(counter)

    def _listen(self, is_listening: bool) -> None:
        if self._listener is None or is_listening == self._is_listening:
            return
        loop = asyncio.get_running_loop()
        if is_listening:
            loop.add_reader(self._listener.fileno(), self._accept_one)
        else:
            loop.remove_reader(self._listener.fileno())
        self._is_listening = is_listening

    def _accept_one(self) -> bool:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return False  # another worker was faster, or the client has gone
        except OSError:  # out of file descriptors: try again when some are free
            self._listen(False)
            return False
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.get_running_loop().create_task(self._join(connection))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)
        self._listen(False)  # for a moment, in which a worker with nothing to do takes the next one
        asyncio.get_running_loop().call_later(ACCEPT_PAUSE_SECONDS, self._listen_again)
        return True

    def _listen_again(self) -> None:
        if not self.should_exit and self.num_connections + len(self._joining) < self._max_connections:
            self._listen(True)

    async def _join(self, connection: socket.socket) -> None:
        config = self.config

        def make_protocol() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(make_protocol, connection)
