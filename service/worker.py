"""One worker process: its engines, its event loop, its share of the socket. Started by the supervisor.

It reads its assignment from standard input, which the supervisor keeps open: when that ends, the supervisor is gone
and the worker drains. It says that it is ready, or why not, in one line on standard output.
"""

import asyncio
import json
import logging
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from service import __version__, logs, metrics
from service.api.app import build_app
from service.api.context import Context
from service.batcher import Limits
from service.bundle import Bundle
from service.engine import Engine, EngineOptions
from service.errors import PortcullisError
from service.http_server import GuardedProtocol, Server
from service.keys import Access, Keys
from service.logs import RequestLog
from service.metrics import Metrics
from service.pipeline import Load, Pipeline
from service.registry import Registry
from service.rings import RingWriter
from service.settings import Settings
from service.state import StateStore

logger = logging.getLogger(__name__)

METRICS_DIRECTORY = "metrics"
RINGS_DIRECTORY = "rings"
TICK_SECONDS = 0.2
LIFELINE = 0  # standard input


@dataclass(frozen=True)
class Assignment:
    """What the supervisor tells a worker at its start."""

    settings: Settings
    slot: int
    device_id: int | None
    """GPU of this worker; none on the CPU."""
    socket_descriptor: int

    def to_json(self) -> str:
        return json.dumps({**vars(self), "settings": self.settings.with_secrets()})

    @staticmethod
    def from_json(line: str) -> "Assignment":
        fields = json.loads(line)
        return Assignment(**{**fields, "settings": Settings.model_validate(fields["settings"])})


class Worker:
    """Puts the parts together and keeps them in line with the desired state."""

    def __init__(self, assignment: Assignment) -> None:
        self._settings = settings = assignment.settings
        self._assignment = assignment
        runtime = settings.runtime_directory
        metrics.use_slot(assignment.slot)
        self._metrics = Metrics()
        self._metrics_directory = runtime / METRICS_DIRECTORY
        self._ring = RingWriter(runtime / RINGS_DIRECTORY / f"{assignment.slot}.ring")
        self._store = StateStore(runtime)
        self._load = load_of(settings, on_gpu=assignment.device_id is not None)
        self._pool = ThreadPoolExecutor(_decode_threads(assignment), "decode")
        self._registry = Registry(
            settings.models, engine_options(assignment), self._build, self._metrics, settings.default_model
        )
        self._is_ready = False

    async def run(self) -> None:
        """Serve until told to stop."""
        await self._start()
        server = self._server()
        self._watch_lifeline(server)
        ticking = asyncio.create_task(self._tick(server))
        listener = socket.socket(fileno=self._assignment.socket_descriptor)
        _say({"ready": True})
        await server.serve(sockets=[listener])
        ticking.cancel()
        await self._registry.close()

    async def _start(self) -> None:
        state = self._store.read()
        assert state is not None, "the supervisor writes the state before it starts a worker"
        await self._registry.reconcile(state)
        missing = set(state.models) - set(self._registry.served)
        if missing:
            raise PortcullisError(f"cannot serve {', '.join(sorted(missing))}; the log says why")
        self._metrics.build_info.labels(__version__).set(1)
        self._become_ready(True)

    def _build(self, bundle: Bundle, engine: Engine) -> Pipeline:
        return Pipeline(bundle, engine, self._load, self._pool, self._metrics, self._ring)

    def _server(self) -> Server:
        settings = self._settings
        context = Context(
            settings=settings,
            registry=self._registry,
            store=self._store,
            access=Access(Keys(settings.predict_keys), Keys(settings.admin_keys)),
            metrics=self._metrics,
            request_log=RequestLog(settings.log_requests_per_second, settings.log_format),
            expose_metrics=lambda: metrics.expose(self._metrics_directory),
            is_ready=lambda: self._is_ready,
        )
        GuardedProtocol.header_timeout_seconds = settings.header_timeout_seconds
        GuardedProtocol.body_timeout_seconds = settings.body_timeout_seconds
        config = uvicorn.Config(
            build_app(context),
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(settings.keep_alive_seconds),
            timeout_graceful_shutdown=int(settings.grace_seconds),
        )
        return Server(config, settings.max_connections, settings.drain_seconds, lambda: self._become_ready(False))

    def _become_ready(self, is_ready: bool) -> None:
        self._is_ready = is_ready
        self._metrics.workers_ready.set(int(is_ready))

    def _watch_lifeline(self, server: Server) -> None:
        """Standard input ends when the supervisor does, however it died."""

        def on_input() -> None:
            if not os.read(LIFELINE, 4096):
                asyncio.get_running_loop().remove_reader(LIFELINE)
                logger.warning("the supervisor has gone; draining")
                server.drain()

        asyncio.get_running_loop().add_reader(LIFELINE, on_input)

    async def _tick(self, server: Server) -> None:
        """Reconcile with the desired state and refresh the gauges, several times a second; outlives any failure."""
        stamp = self._store.stamp()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                self._refresh_gauges(server)
                if (now := self._store.stamp()) != stamp:
                    stamp = now
                    state = self._store.read()
                    if state is not None and state.revision != self._registry.revision:
                        await self._registry.reconcile(state)
            except Exception:
                logger.exception("could not follow the desired state; trying again")

    def _refresh_gauges(self, server: Server) -> None:
        self._metrics.connections.set(server.num_connections)
        for name, served in self._registry.served.items():
            for version, pipeline in served.pipelines.items():
                self._metrics.queue_depth.labels(name, str(version)).set(pipeline.queue_depth)
                self._metrics.queue_capacity.labels(name, str(version)).set(self._load.limits.queue_capacity)


def load_of(settings: Settings, on_gpu: bool) -> Load:
    """How a pipeline shares out the machine; on a CPU larger batches gain little and make everybody wait."""
    inline = settings.inline_decode_bytes
    if inline is None:
        inline = 0 if on_gpu else 65536
    return Load(
        limits=Limits(
            max_batch=settings.max_batch or (64 if on_gpu else 4),
            queue_capacity=settings.queue_capacity,
            overload_wait_seconds=settings.overload_wait_seconds,
        ),
        max_pixels=settings.max_pixels,
        inline_decode_bytes=inline,
    )


def engine_options(assignment: Assignment) -> EngineOptions:
    """The engine's part of the settings."""
    settings = assignment.settings
    return EngineOptions(
        providers=settings.providers,
        allow_fallback=settings.allow_fallback,
        device_id=assignment.device_id or 0,
        threads=settings.engine_threads,
        tensorrt_cache=settings.tensorrt_cache,
        gpu_memory_limit_bytes=settings.gpu_memory_limit_bytes,
    )


def _decode_threads(assignment: Assignment) -> int:
    return assignment.settings.decode_threads or (1 if assignment.device_id is None else 4)


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Entry of the worker process."""
    assignment = Assignment.from_json(_first_line())
    logs.configure(assignment.settings.log_level, assignment.settings.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(assignment))
    except PortcullisError as error:
        _say({"error": str(error)})
        sys.exit(1)


async def _run(assignment: Assignment) -> None:
    await Worker(assignment).run()


def _first_line() -> str:
    """Read byte by byte, so that nothing behind the line is swallowed by a buffer."""
    line = bytearray()
    while (byte := os.read(LIFELINE, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode()


if __name__ == "__main__":
    main()
