"""The HTTP server of a worker: uvicorn, with a fair share of new connections, TLS and a drain that loses none."""

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from portcullis.http.protocol import FIRST_REQUEST_SECONDS, LINGER_SECONDS, GuardedProtocol
from portcullis.http.tls import Certificate

ACCEPT_PAUSE_SECONDS = 0.001
CERTIFICATE_TICKS = 10  # of a tenth of a second


def configure(app: Any, keep_alive_seconds: float, grace_seconds: float) -> uvicorn.Config:
    """uvicorn with our protocol and without what we do ourselves."""
    return uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # It asks for whole seconds and only ever hands them on to the event loop, which takes any.
        timeout_keep_alive=keep_alive_seconds,  # type: ignore[arg-type]
        timeout_graceful_shutdown=grace_seconds,  # type: ignore[arg-type]
    )


class Server(uvicorn.Server):
    """Takes one new connection at a time from a socket that all workers share, so that a burst spreads over them."""

    def __init__(
        self,
        config: uvicorn.Config,
        max_connections: int,
        drain_seconds: float,
        on_drain: Callable[[], None],
        certificate: Certificate | None = None,
    ) -> None:
        super().__init__(config)
        self._certificate = certificate
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
        """SIGTERM drains. SIGINT is for the supervisor: a terminal sends it to every process of the group.

        Beside a scheduler's main thread there are no signals, and whoever runs the server drains it.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
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
        if self._certificate is not None and counter % CERTIFICATE_TICKS == 0:
            await asyncio.to_thread(self._certificate.refresh)
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

        with contextlib.suppress(OSError):  # which a failed handshake is too
            await asyncio.get_running_loop().connect_accepted_socket(make_protocol, connection, **self._tls())

    def _tls(self) -> dict[str, Any]:
        if self._certificate is None:
            return {}
        return {
            "ssl": self._certificate.context,
            "ssl_handshake_timeout": GuardedProtocol.header_timeout_seconds,
            "ssl_shutdown_timeout": LINGER_SECONDS,
        }

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Whoever was taken a moment ago may still be shaking hands, and gets an answer too."""
        if self._joining:
            await asyncio.wait(self._joining, timeout=FIRST_REQUEST_SECONDS)
        await super().shutdown(sockets)
