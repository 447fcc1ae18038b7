"""What answers requests in one process: engines, or the lanes to them, what follows the desired state, the application.

It knows neither sockets nor who started the process.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable

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
from portcullis.api.front import Front
from portcullis.bundle.files import Bundle
from portcullis.bundle.providers import CPU
from portcullis.bundle.sources.cached import Events
from portcullis.drift.instances import InstanceReader
from portcullis.drift.published import DriftReader
from portcullis.drift.rings import RingWriter, ring_path
from portcullis.errors import DatabaseAway, PortcullisError, SourceAway, StateNotWritten
from portcullis.http.keys import Access, Keys
from portcullis.lifecycle.calibrating import Calibrating
from portcullis.lifecycle.changes import Changes
from portcullis.lifecycle.opening import OpenEngine
from portcullis.lifecycle.registry import Registry
from portcullis.lifecycle.shadowing import Shadowing
from portcullis.lifecycle.watcher import WATCHER, Watcher
from portcullis.processes.assignment import (
    METRICS_DIRECTORY,
    RINGS_DIRECTORY,
    SHADOW_DIRECTORY,
    DeviceLink,
)
from portcullis.processes.bundles import counting, noting, source_for
from portcullis.processes.placement import Placement, placed_options
from portcullis.processes.sizing import decode_threads, load_of, num_slots
from portcullis.processes.state_watch import StateWatch
from portcullis.processes.stores import reading_of, stores_of
from portcullis.processes.upkeep import Upkeep
from portcullis.settings import Settings
from portcullis.store.followers import Followers
from portcullis.store.state import DesiredState, StateStore
from portcullis.telemetry.collectors import ServedCollector, StoreCollector, expose
from portcullis.telemetry.drift_collector import DriftCollector
from portcullis.telemetry.files import use_slot
from portcullis.telemetry.instruments import Metrics
from portcullis.telemetry.logs import RequestLog
from portcullis.telemetry.tracing import tracing_of

logger = logging.getLogger(__name__)


class Serving:
    """Puts the parts together and keeps them in line with the desired state: start, follow, close."""

    def __init__(
        self,
        settings: Settings,
        slot: int,
        placement: Placement,
        on_broken: Callable[[str], None],
        link: DeviceLink | None = None,
    ) -> None:
        """`on_broken`: told why, once an engine cannot go on; who serves then leaves, to be replaced."""
        self._settings, self._slot, self._placement, self._on_broken = settings, slot, placement, on_broken
        runtime = settings.runtime_directory
        use_slot(slot)
        self._metrics = Metrics()
        self._ring = RingWriter(ring_path(runtime / RINGS_DIRECTORY, slot))
        self._stores = stores = stores_of(settings)
        self._store, shared = StateStore(stores.local), StateStore(stores.shared)
        followers = Followers(stores.local, settings.instance or "", stores.fleet)
        self._load = load_of(settings, on_gpu=link is not None or placement.provider != CPU)
        self._link = self._make_link(link)
        self._pool = PreparingPool(decode_threads(settings))
        self._shadowing = Shadowing(runtime / SHADOW_DIRECTORY, slot, self._metrics, settings.max_pixels)
        # one worker looks for newer versions and is answerable for whether the source is reached
        events = counting(self._metrics, noting(stores.local) if slot == 0 else Events())
        self._source = source = source_for(settings, self._store, events)
        self._registry = Registry(
            source,
            placed_options(settings, placement),
            self._open_engine(),
            self._build,
            self._shadowing,
            self._metrics,
            confirm=lambda followed: followers.confirm(slot, followed),
            place=stores.local.identity,
            default_model=settings.default_model or source.at_hand().default_name,
        )
        self._changes = Changes(
            source, settings.gate, self._registry, shared, followers, self._metrics, managed_in=settings.state
        )
        self._watcher = Watcher(source, settings.serve, self._changes, self._store, runtime)
        self._review = review_of(settings, stores.shared, self._metrics)
        self._tracing = tracing_of(settings, slot)
        self._drift = DriftReader(stores.local)
        capacity = self._load.limits.queue_capacity / (self._link.num_sharing if self._link is not None else 1)
        self._upkeep = Upkeep(self._registry, self._shadowing, self._metrics, capacity)
        self._watch: StateWatch | None = None
        self._ticking: list[asyncio.Task[None]] = []
        self._can_answer = self._is_draining = False

    # -- from the start to the end -----------------------------------------------------------------------------------

    async def start(self, is_first: bool) -> None:
        """Load and warm up what the desired state names; `is_first`: not in the place of a process that died."""
        state = await self._take_up_state()
        missing = set(state.models) - set(self._registry.served)
        if missing:
            reasons = "; ".join(self._registry.problems[name] for name in sorted(missing))
            raise PortcullisError(f"cannot serve {', '.join(sorted(missing))}: {reasons}")
        if self._watches_models and is_first:  # versions that appeared since the last run
            await self._look_for_newer_versions()
        self._metrics.build_info.labels(__version__).set(1)
        if self._link is None:
            self._metrics.max_batch.set(self._load.limits.max_batch)
        self._become_able(True)

    def follow(self, num_connections: Callable[[], int]) -> None:
        """Keep up with the desired state, and show how things are, until the end."""
        self._watch = StateWatch(self._store.at_hand, lambda: self._registry.revision, self._registry.follow)
        self._ticking.append(asyncio.create_task(self._upkeep.run(num_connections, self._is_ready)))
        if self._watches_models and (self._settings.watch_models_seconds or self._is_source_away()):
            self._ticking.append(asyncio.create_task(self._watcher.run(self._settings.watch_models_seconds)))

    async def close(self, seconds: float | None = None) -> None:
        """Answer what is queued, in so much time at the most, and let go of everything."""
        self._become_able(False)
        if self._watch is not None:
            await self._watch.stop()
        for task in self._ticking:
            task.cancel()
        if self._link is not None:
            self._link.close()
        with contextlib.suppress(TimeoutError):  # beside a broken engine others may hang too
            await asyncio.wait_for(self._registry.close(), seconds)
        self._review.close()
        if self._tracing is not None:
            self._tracing.close()

    def drain(self) -> None:
        """Say not ready. Who comes all the same is answered, until the server leaves or `close`."""
        self._is_draining = True
        self._show_readiness()

    def can_answer(self) -> bool:
        return self._can_answer and (self._link is None or self._registry.absence is None)

    def _is_ready(self) -> bool:
        return self.can_answer() and not self._is_draining

    def _become_able(self, can_answer: bool) -> None:
        self._can_answer = can_answer
        self._show_readiness()

    def _show_readiness(self) -> None:
        is_ready = int(self._is_ready())
        self._metrics.workers_ready.set(is_ready)
        if self._link is None:
            self._metrics.engines.set(is_ready)

    def application(self) -> Front:
        """The routes around it."""
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
                settings.runtime_directory / METRICS_DIRECTORY,
                ServedCollector(self._registry.describe),
                DriftCollector(self._drift.readings),
                StoreCollector(lambda: [reading_of(self._stores, settings, self._registry.revision)]),
            ),
            can_answer=self.can_answer,
            is_draining=lambda: self._is_draining,
            review=self._review,
            tracing=self._tracing,
        )
        return build_app(context)

    # -- the state ---------------------------------------------------------------------------------------------------

    async def _take_up_state(self) -> DesiredState:
        """Until nothing newer is there: who changes something waits for workers that have spoken, and this one has."""
        while True:
            state = await asyncio.to_thread(self._store.read)
            if state is None:
                raise PortcullisError("the desired state cannot be read; it is written before any start")
            if state.revision == self._registry.revision:
                return state
            await self._registry.reconcile(state)

    async def _look_for_newer_versions(self) -> None:
        try:
            await self._watcher.scan(WATCHER)
        except (DatabaseAway, SourceAway, StateNotWritten) as error:  # it serves what it has all the same
            logger.error("cannot adopt newer versions now: %s", error)

    def _is_source_away(self) -> bool:
        return reading_of(self._stores, self._settings, self._registry.revision).is_source_reached is False

    @property
    def _watches_models(self) -> bool:
        """One worker looks for newer versions, unless a document says what is served."""
        return self._slot == 0 and self._settings.state is None

    # -- engines -----------------------------------------------------------------------------------------------------

    def _make_link(self, link: DeviceLink | None) -> Link | None:
        """The way to the engine process of this worker's device, where it has one."""
        if link is None:
            return None
        return Link(bytes.fromhex(link.address), Board(link.board_descriptor), link.front, num_slots(self._load))

    def _open_engine(self) -> OpenEngine:
        if self._link is not None:
            return functools.partial(EngineThere, self._link)
        from portcullis.answering.engine_here import opener  # a front has no use for onnxruntime

        return opener(placed_options(self._settings, self._placement))

    def _build(self, bundle: Bundle, engine: ServedEngine) -> Pipeline:
        return Pipeline(bundle, engine, self._load, self._pool, self._metrics, self._ring, self._give_up)

    def _give_up(self, cause: str) -> None:
        """An engine is broken: take no more requests, answer what other engines have, and leave to be replaced."""
        logger.error("%s; leaving", cause)
        self._become_able(False)
        self._on_broken(cause)
