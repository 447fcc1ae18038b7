"""One worker process: its engines, its event loop, its share of the socket. Started by the supervisor.

It reads its assignment from standard input, which the supervisor keeps open: when that ends, the supervisor is gone
and the worker drains. It says that it is ready, or why not, in one line on standard output.
"""

import asyncio
import gc
import itertools
import json
import logging
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
import uvloop

from service import __version__, logs, metrics
from service.api.app import build_app
from service.api.context import Context
from service.assignment import METRICS_DIRECTORY, RINGS_DIRECTORY, SHADOW_DIRECTORY, Assignment
from service.bundle import Bundle
from service.changes import Changes
from service.drift_reader import DriftReader
from service.engine import Engine
from service.errors import PortcullisError
from service.http_protocol import GuardedProtocol
from service.http_server import Server
from service.keys import Access, Keys
from service.logs import RequestLog
from service.machine_share import decode_threads, engine_options, load_of
from service.metrics import Metrics
from service.metrics.files import use_slot
from service.pipeline import Pipeline
from service.registry import Registry
from service.review import review_of
from service.rings import RingWriter, ring_path
from service.shadowing import Shadowing
from service.state import StateStore
from service.tracing import tracing_of
from service.watch import WATCHER, Watcher

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.05
GAUGE_TICKS = 4
RETRY_TICKS = 20
LIFELINE = 0  # standard input
SWITCH_SECONDS = 0.0005  # how long the engine's thread and the event loop keep the interpreter from each other


class Worker:
    """Puts the parts together and keeps them in line with the desired state."""

    def __init__(self, assignment: Assignment) -> None:
        self._settings = settings = assignment.settings
        self._assignment = assignment
        runtime = settings.runtime_directory
        use_slot(assignment.slot)
        self._metrics = Metrics()
        self._metrics_directory = runtime / METRICS_DIRECTORY
        self._ring = RingWriter(ring_path(runtime / RINGS_DIRECTORY, assignment.slot))
        self._store = StateStore(runtime)
        self._load = load_of(settings, on_gpu=assignment.device_id is not None)
        self._pool = ThreadPoolExecutor(decode_threads(assignment), "decode")
        self._shadowing = Shadowing(runtime / SHADOW_DIRECTORY, assignment.slot, self._metrics, settings.max_pixels)
        self._registry = Registry(
            settings.models,
            engine_options(assignment),
            self._build,
            self._shadowing,
            self._metrics,
            confirm=lambda revision: self._store.confirm(assignment.slot, revision),
            default_model=settings.default_model,
        )
        self._changes = Changes(settings.models, settings.gate, self._registry, self._store, self._metrics)
        self._watcher = Watcher(settings.models, settings.serve, self._changes, self._store, runtime)
        self._review = review_of(settings, self._metrics)
        self._tracing = tracing_of(settings, assignment.slot)
        self._drift = DriftReader(runtime)
        self._is_ready = False

    async def run(self) -> None:
        """Serve until told to stop."""
        sys.setswitchinterval(SWITCH_SECONDS)
        await self._start()
        server = self._server()
        gc.collect()
        gc.freeze()  # what is loaded now stays: no need to look through it again and again
        self._watch_lifeline(server)
        ticking = [asyncio.create_task(self._tick(server))]
        if self._assignment.slot == 0 and self._settings.watch_models_seconds:
            ticking.append(asyncio.create_task(self._watcher.run(self._settings.watch_models_seconds)))
        listener = socket.socket(fileno=self._assignment.socket_descriptor)
        _say({"ready": True})
        await server.serve(sockets=[listener])
        for task in ticking:
            task.cancel()
        await self._registry.close()
        self._review.close()
        if self._tracing is not None:
            self._tracing.close()

    async def _start(self) -> None:
        state = self._store.read()
        assert state is not None, "the supervisor writes the state before it starts a worker"
        await self._registry.reconcile(state)
        missing = set(state.models) - set(self._registry.served)
        if missing:
            reasons = "; ".join(self._registry.problems[name] for name in sorted(missing))
            raise PortcullisError(f"cannot serve {', '.join(sorted(missing))}: {reasons}")
        if self._assignment.slot == 0 and self._assignment.is_first:  # versions that appeared since the last run
            await self._watcher.scan(WATCHER)
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
            changes=self._changes,
            watcher=self._watcher,
            drift=self._drift,
            access=Access(Keys(settings.predict_keys), Keys(settings.admin_keys)),
            metrics=self._metrics,
            request_log=RequestLog(settings.log_requests_per_second, settings.log_format),
            expose_metrics=lambda: metrics.expose(
                self._metrics_directory,
                metrics.ServedCollector(self._registry.describe),
                metrics.DriftCollector(self._drift.reports),
            ),
            is_ready=lambda: self._is_ready,
            review=self._review,
            tracing=self._tracing,
        )
        GuardedProtocol.header_timeout_seconds = settings.header_timeout_seconds
        GuardedProtocol.body_timeout_seconds = settings.body_timeout_seconds
        app = build_app(context)
        GuardedProtocol.turn_away = app.turn_away
        config = uvicorn.Config(
            app,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
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
        """Reconcile with the desired state and refresh the gauges, many times a second; outlives any failure."""
        stamp = (0, 0)
        for tick in itertools.count():
            await asyncio.sleep(TICK_SECONDS)
            try:
                if tick % GAUGE_TICKS == 0:
                    self._refresh_gauges(server)
                    self._shadowing.publish()
                is_due = bool(self._registry.problems) and tick % RETRY_TICKS == 0
                if is_due or self._store.stamp() != stamp:
                    stamp = self._store.stamp()
                    await self._follow()
            except Exception:
                logger.exception("could not follow the desired state; trying again")

    async def _follow(self) -> None:
        state = self._store.read()
        if state is not None:
            await self._registry.reconcile(state)

    def _refresh_gauges(self, server: Server) -> None:
        self._metrics.connections.set(server.num_connections)
        for name, served in self._registry.served.items():
            for version, pipeline in served.pipelines.items():
                self._metrics.queue_depth.labels(name, str(version)).set(pipeline.queue_depth)
                self._metrics.queue_capacity.labels(name, str(version)).set(self._load.limits.queue_capacity)


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
