"""One worker process: its engines, or the lanes to them, its event loop, its share of the socket.

It reads its assignment from standard input, which the supervisor keeps open: when that ends, the supervisor is gone
and the worker drains. It says that it is ready, or why not, on a pipe of its own (control.py); its standard output
belongs to whoever prints.
"""

import asyncio
import contextlib
import functools
import gc
import logging
import os
import socket
import sys

import uvloop

from portcullis import __version__
from portcullis.answering.device.board import Board
from portcullis.answering.device.link import Link
from portcullis.answering.engine_there import EngineThere
from portcullis.answering.pipeline import Pipeline
from portcullis.answering.preparing import PreparingPool
from portcullis.answering.review_queue import review_of
from portcullis.answering.served_engine import ServedEngine
from portcullis.api.app import build_app
from portcullis.api.context import Context
from portcullis.bundle.files import Bundle
from portcullis.bundle.sources.cached import Events
from portcullis.drift.instances import InstanceReader
from portcullis.drift.published import DriftReader
from portcullis.drift.rings import RingWriter, ring_path
from portcullis.errors import DatabaseAway, PortcullisError, SourceAway, StateNotWritten
from portcullis.http.keys import Access, Keys
from portcullis.http.protocol import GuardedProtocol
from portcullis.http.server import Server, configure
from portcullis.http.tls import certificate_of
from portcullis.lifecycle.calibrating import Calibrating
from portcullis.lifecycle.changes import Changes
from portcullis.lifecycle.opening import OpenEngine
from portcullis.lifecycle.registry import Registry
from portcullis.lifecycle.shadowing import Shadowing
from portcullis.lifecycle.watcher import WATCHER, Watcher
from portcullis.processes import control
from portcullis.processes.assignment import (
    METRICS_DIRECTORY,
    RINGS_DIRECTORY,
    SHADOW_DIRECTORY,
    Assignment,
)
from portcullis.processes.bundles import counting, noting, source_for
from portcullis.processes.control import ENGINE_BROKEN, Message
from portcullis.processes.lifeline import LIFELINE, first_line
from portcullis.processes.placement import placed_options
from portcullis.processes.sizing import decode_threads, load_of, num_slots
from portcullis.processes.state_watch import StateWatch
from portcullis.processes.stores import reading_of, stores_of
from portcullis.processes.upkeep import Upkeep
from portcullis.store.followers import Followers
from portcullis.store.state import DesiredState, StateStore
from portcullis.telemetry import logs
from portcullis.telemetry.collectors import ServedCollector, StoreCollector, expose
from portcullis.telemetry.drift_collector import DriftCollector
from portcullis.telemetry.files import use_slot
from portcullis.telemetry.instruments import Metrics
from portcullis.telemetry.logs import RequestLog
from portcullis.telemetry.tracing import tracing_of

logger = logging.getLogger(__name__)

CLOSE_BROKEN_SECONDS = 5.0
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
        self._stores = stores = stores_of(settings)
        self._store, shared = StateStore(stores.local), StateStore(stores.shared)
        followers = Followers(stores.local, settings.instance or "", stores.fleet)
        self._load = load_of(settings, on_gpu=assignment.link is not None)
        self._link = self._make_link()
        self._pool = PreparingPool(decode_threads(settings))
        self._shadowing = Shadowing(runtime / SHADOW_DIRECTORY, assignment.slot, self._metrics, settings.max_pixels)
        # one worker looks for newer versions and is answerable for whether the source is reached
        events = counting(self._metrics, noting(stores.local) if assignment.slot == 0 else Events())
        self._source = source = source_for(settings, self._store, events)
        self._registry = Registry(
            source,
            placed_options(settings, assignment.placement),
            self._open_engine(),
            self._build,
            self._shadowing,
            self._metrics,
            confirm=lambda followed: followers.confirm(assignment.slot, followed),
            place=stores.local.identity,
            default_model=settings.default_model or source.at_hand().default_name,
        )
        self._changes = Changes(
            source, settings.gate, self._registry, shared, followers, self._metrics, managed_in=settings.state
        )
        self._watcher = Watcher(source, settings.serve, self._changes, self._store, runtime)
        self._review = review_of(settings, stores.shared, self._metrics)
        self._tracing = tracing_of(settings, assignment.slot)
        self._drift = DriftReader(stores.local)
        capacity = self._load.limits.queue_capacity / (self._link.num_sharing if self._link is not None else 1)
        self._upkeep = Upkeep(self._registry, self._shadowing, self._metrics, capacity)
        self._running: Server | None = None
        self._is_loaded = self._is_draining = self._is_broken = False

    async def run(self) -> int:
        """Serve until told to stop, or until an engine is broken; the status to end with."""
        sys.setswitchinterval(SWITCH_SECONDS)
        await self._start()
        self._running = server = self._server()
        server.config.load()  # whatever uvicorn imports, before anybody is told that we are ready
        gc.collect()
        gc.freeze()  # what is loaded now stays: no need to look through it again and again
        self._watch_lifeline(server)
        watch = StateWatch(self._store.at_hand, lambda: self._registry.revision, self._registry.follow)
        ticking = [asyncio.create_task(self._upkeep.run(lambda: server.num_connections, self._is_ready))]
        if self._watches_models and (self._settings.watch_models_seconds or self._is_source_away()):
            ticking.append(asyncio.create_task(self._watcher.run(self._settings.watch_models_seconds)))
        listener = socket.socket(fileno=self._assignment.socket_descriptor)
        control.say(self._assignment.control_descriptor, Message(event="ready"))
        await server.serve(sockets=[listener])
        await watch.stop()
        for task in ticking:
            task.cancel()
        if self._link is not None:
            self._link.close()
        with contextlib.suppress(TimeoutError):  # beside a broken engine others may hang too
            await asyncio.wait_for(self._registry.close(), CLOSE_BROKEN_SECONDS if self._is_broken else None)
        self._review.close()
        if self._tracing is not None:
            self._tracing.close()
        return ENGINE_BROKEN if self._is_broken else 0

    async def _start(self) -> None:
        state = await self._take_up_state()
        missing = set(state.models) - set(self._registry.served)
        if missing:
            reasons = "; ".join(self._registry.problems[name] for name in sorted(missing))
            raise PortcullisError(f"cannot serve {', '.join(sorted(missing))}: {reasons}")
        if self._watches_models and self._assignment.is_first:  # versions that appeared since the last run
            await self._look_for_newer_versions()
        self._metrics.build_info.labels(__version__).set(1)
        if self._link is None:
            self._metrics.max_batch.set(self._load.limits.max_batch)
        self._is_loaded = True
        self._show_readiness()

    async def _look_for_newer_versions(self) -> None:
        try:
            await self._watcher.scan(WATCHER)
        except (DatabaseAway, SourceAway, StateNotWritten) as error:  # it serves what it has all the same
            logger.error("cannot adopt newer versions now: %s", error)

    def _is_source_away(self) -> bool:
        return reading_of(self._stores, self._settings, self._registry.revision).is_source_reached is False

    async def _take_up_state(self) -> DesiredState:
        """Until nothing newer is there: who changes something waits for workers that have spoken, and this one has."""
        while True:
            state = await asyncio.to_thread(self._store.read)
            if state is None:
                raise PortcullisError("the desired state cannot be read; the supervisor writes it before any start")
            if state.revision == self._registry.revision:
                return state
            await self._registry.reconcile(state)

    @property
    def _watches_models(self) -> bool:
        """One worker looks for newer versions, unless a document says what is served."""
        return self._assignment.slot == 0 and self._settings.state is None

    def _make_link(self) -> Link | None:
        """The way to the engine process of this worker's device, where it has one."""
        link = self._assignment.link
        if link is None:
            return None
        return Link(bytes.fromhex(link.address), Board(link.board_descriptor), link.front, num_slots(self._load))

    def _open_engine(self) -> OpenEngine:
        if self._link is not None:
            return functools.partial(EngineThere, self._link)
        from portcullis.answering.engine_here import opener  # a front has no use for onnxruntime

        return opener(placed_options(self._settings, self._assignment.placement))

    def _build(self, bundle: Bundle, engine: ServedEngine) -> Pipeline:
        return Pipeline(bundle, engine, self._load, self._pool, self._metrics, self._ring, self._give_up)

    def _give_up(self, cause: str) -> None:
        """An engine is broken: take no more requests, answer what other engines have, and leave to be replaced."""
        logger.error("%s; leaving", cause)
        control.say(self._assignment.control_descriptor, Message(event="broken", reason=cause))
        self._is_broken = True
        self._show_readiness()
        if self._running is not None:
            self._running.drain()

    def _server(self) -> Server:
        settings = self._settings
        context = Context(
            settings=settings,
            registry=self._registry,
            changes=self._changes,
            calibrating=Calibrating(self._registry, StateStore(self._stores.shared), self._changes, self._source),
            watcher=self._watcher,
            source=self._source,
            drift=self._drift,
            instances=InstanceReader(self._stores.fleet),
            access=Access(Keys(settings.predict_keys), Keys(settings.admin_keys)),
            metrics=self._metrics,
            request_log=RequestLog(settings.log_requests_per_second, settings.log_format),
            expose_metrics=lambda: expose(
                self._metrics_directory,
                ServedCollector(self._registry.describe),
                DriftCollector(self._drift.readings),
                StoreCollector(lambda: [reading_of(self._stores, settings, self._registry.revision)]),
            ),
            can_answer=self._can_answer,
            is_draining=lambda: self._is_draining,
            review=self._review,
            tracing=self._tracing,
        )
        GuardedProtocol.header_timeout_seconds = settings.header_timeout_seconds
        GuardedProtocol.body_timeout_seconds = settings.body_timeout_seconds
        app = build_app(context)
        GuardedProtocol.turn_away, GuardedProtocol.cross_origin = app.turn_away, app.cross_origin
        return Server(
            configure(app, settings.keep_alive_seconds, settings.grace_seconds),
            settings.max_connections,
            settings.drain_seconds,
            self._on_drain,
            certificate_of(settings.tls_certificate_file, settings.tls_key_file),
        )

    def _on_drain(self) -> None:
        """Nobody should come any more; who does all the same is answered, until the server leaves."""
        self._is_draining = True
        self._show_readiness()

    def _show_readiness(self) -> None:
        is_ready = int(self._is_ready())
        self._metrics.workers_ready.set(is_ready)
        if self._link is None:
            self._metrics.engines.set(is_ready)

    def _can_answer(self) -> bool:
        is_there = self._link is None or self._registry.absence is None
        return self._is_loaded and not self._is_broken and is_there

    def _is_ready(self) -> bool:
        return self._can_answer() and not self._is_draining

    def _watch_lifeline(self, server: Server) -> None:
        """Standard input ends when the supervisor does, however it died."""

        def on_input() -> None:
            if not os.read(LIFELINE, 4096):
                asyncio.get_running_loop().remove_reader(LIFELINE)
                logger.warning("the supervisor has gone; draining")
                server.drain()

        asyncio.get_running_loop().add_reader(LIFELINE, on_input)


def main() -> None:
    """Entry of the worker process."""
    assignment = Assignment.from_json(first_line())
    os.set_inheritable(assignment.control_descriptor, False)
    logs.configure(assignment.settings.log_level, assignment.settings.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(assignment))
    except PortcullisError as error:
        control.say(assignment.control_descriptor, Message(event="failed", reason=str(error)))
        sys.exit(1)


async def _run(assignment: Assignment) -> None:
    status = await Worker(assignment).run()
    if status:  # at once: Python would wait for threads, and one of them hangs
        logging.shutdown()
        os._exit(status)


if __name__ == "__main__":
    main()
