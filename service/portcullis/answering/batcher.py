"""Gathers what arrives while a batch runs into the next batch. Knows no images, HTTP or gate.

There is no timer: an idle batcher starts at once, a busy one makes larger batches. One thread prepares the items (one
that fails, fails alone) and runs them, so on a one-core worker a request crosses threads only twice; large items are
prepared beside it (preparing.py). The queue is bounded, and while more is offered than served only what will be
answered soon is admitted (admission.py): before anything is done for it, and nothing is done for who has gone since.
"""

import asyncio
import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, cast

from portcullis.answering.admission import Admission, Limits, Line, PoolLine
from portcullis.answering.engine_watch import Progress
from portcullis.answering.job import Item, Job, Prepared, Row
from portcullis.answering.preparing import PreparingPool
from portcullis.answering.sweeping import sweep
from portcullis.errors import (
    EngineError,
    Overloaded,
    ServiceError,
    Unavailable,
)

logger = logging.getLogger(__name__)

NICENESS = 10

Outcome = tuple[Job[Item, Prepared, Row], Row | BaseException]


class Batcher(Generic[Item, Prepared, Row]):
    """`submit` from the event loop; `prepare` and `run` happen on a thread of its own."""

    def __init__(
        self,
        prepare: Callable[[Item], Prepared],
        run: Callable[[list[Prepared]], Sequence[Row]],
        limits: Limits,
        on_batch: Callable[[int], None] = lambda size: None,
        on_drop: Callable[[str], None] = lambda reason: None,
        pool: PreparingPool | None = None,
        is_large: Callable[[Item], bool] = lambda item: False,
    ) -> None:
        self._prepare, self._run = prepare, run
        self._max_batch, self._admission = limits.max_batch, Admission(limits, time.monotonic())
        self._on_batch, self._on_drop = on_batch, on_drop
        self._pool, self._is_large = pool, is_large
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Job[Item, Prepared, Row] | None] = SimpleQueue()
        self._pending: set[Job[Item, Prepared, Row]] = set()
        self._beside: set[Job[Item, Prepared, Row]] = set()
        """Jobs that wait for the pool or are prepared there."""
        self._running = (0, 0.0)
        """How many run, and since when; the engine's thread writes it, and the next line."""
        self._num_failed = 0
        self._closed: str | None = None
        """Why nobody is admitted any more."""
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()
        self._sweeper = self._loop.create_task(sweep(self._pending, on_drop))

    @property
    def depth(self) -> int:
        """Items that wait, not counting those that run."""
        return self._queue.qsize() + len(self._beside)

    def refuse_if_flooded(self, is_large: bool = False) -> None:
        """Raise Overloaded while a flood lasts, before its body is read: refusing must cost less than serving."""
        if not self._admission.is_flooded:  # nearly always: asked more than once a request, so nothing else first
            return
        now, line, pool = time.monotonic(), self._line(), self._pool_line(is_large)
        if self._admission.is_hopeless(line, now, pool):
            self._refuse(line)

    async def submit(
        self, item: Item, deadline: float = math.inf, is_gone: Callable[[], bool] = lambda: False
    ) -> tuple[Row, Job[Item, Prepared, Row]]:
        """The row of one item. Raises Overloaded at once rather than let a backlog grow."""
        now = time.monotonic()
        if self._closed is not None:
            raise Unavailable(self._closed)
        line, pool = self._line(), self._pool_line(self._is_large(item))
        if not self._admission.offer(line, now, pool, deadline):
            self._refuse(line)
        job: Job[Item, Prepared, Row] = Job(item, deadline, is_gone, self._loop.create_future(), now)
        self._pending.add(job)
        try:
            if self._pool is not None and pool is not None:
                self._beside.add(job)
                self._pool.submit(lambda: self._prepare_beside(job))
            else:
                self._queue.put(job)
            return await job.future, job
        finally:
            self._pending.discard(job)

    def progress(self) -> Progress:
        """How the batches go."""
        num_running, since = self._running
        return Progress(self._num_failed, since if num_running else None)

    def abandon(self) -> None:
        """The engine is broken: refuse everybody, also those who wait, and expect nothing more of its thread."""
        self._closed, self._is_abandoned = "the engine has failed and is being replaced; try again", True
        for job in self._pending:
            if not job.future.done():
                job.future.set_exception(Unavailable(self._closed))

    async def close(self) -> None:
        """Finish what is queued, then end the thread."""
        self._closed = self._closed or "this model is being unloaded; try again"
        if self._is_abandoned:
            self._sweeper.cancel()
            return
        if self._pending:
            await asyncio.wait([job.future for job in self._pending])
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._sweeper.cancel()

    def _line(self) -> Line:
        return Line(self.depth, *self._running)

    def _pool_line(self, is_large: bool) -> PoolLine | None:
        return self._pool.line() if self._pool is not None and is_large else None

    def _refuse(self, line: Line) -> None:
        self._on_drop("queue_full")
        raise Overloaded(f"{line.num_waiting} images are waiting already; try again in a moment")

    # -- the engine's thread -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        _step_back()
        while jobs := self._take():
            self._running = len(jobs), time.monotonic()
            try:
                self._run_batch(jobs)
            except BaseException as error:  # the loop must outlive any batch
                logger.exception("a batch of %d failed", len(jobs))
                self._deliver([(job, EngineError(f"the batch failed: {type(error).__name__}")) for job in jobs])
            self._running = 0, 0.0

    def _take(self) -> list[Job[Item, Prepared, Row]]:
        """What waits, up to a batch; nothing once the batcher is closed and the queue empty: None is its last."""
        jobs: list[Job[Item, Prepared, Row]] = []
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == self._max_batch:
                return jobs
            try:
                job = self._queue.get_nowait()
            except Empty:
                return jobs
        if jobs:
            self._queue.put(None)
        return jobs

    def _run_batch(self, jobs: list[Job[Item, Prepared, Row]]) -> None:
        started, work_started = time.monotonic(), time.thread_time()
        ready: list[Job[Item, Prepared, Row]] = []
        outcomes: list[Outcome[Item, Prepared, Row]] = []
        for job in jobs:
            job.queue_seconds = started - job.submitted - job.prepare_seconds
            refusal = job.prepare(self._prepare, self._on_drop)
            if refusal is None:
                ready.append(job)
            else:
                outcomes.append((job, refusal))
        if ready:
            outcomes += self._run_together(ready)
        self._deliver(outcomes, time.monotonic() - started, time.thread_time() - work_started)

    def _run_together(self, jobs: list[Job[Item, Prepared, Row]]) -> list[Outcome[Item, Prepared, Row]]:
        started = time.monotonic()
        try:
            rows = self._run([cast(Prepared, job.prepared) for job in jobs])
            if len(rows) != len(jobs):
                raise EngineError(f"expected {len(jobs)} rows from the engine, got {len(rows)}")
        except Exception as error:
            self._num_failed += 1
            if not isinstance(error, ServiceError):
                logger.exception("the engine failed on a batch of %d", len(jobs))
            return [(job, error) for job in jobs]
        self._num_failed = 0
        seconds = time.monotonic() - started
        self._on_batch(len(jobs))
        for job in jobs:
            job.run_seconds = seconds
        return list(zip(jobs, rows, strict=True))

    # -- a thread of the pool ----------------------------------------------------------------------------------------

    def _prepare_beside(self, job: Job[Item, Prepared, Row]) -> bool:
        """Whether there was something to do."""
        job.prepare_wait_seconds = time.monotonic() - job.submitted
        refusal = job.prepare(self._prepare, self._on_drop)
        if refusal is None:
            self._queue.put(job)
        else:
            self._deliver([(job, refusal)])
        self._beside.discard(job)
        return job.prepared is not None

    def _deliver(
        self, outcomes: list[Outcome[Item, Prepared, Row]], seconds: float = 0.0, work_seconds: float = 0.0
    ) -> None:
        """`seconds` that a batch took, `work_seconds` by the clock of its thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle, outcomes, seconds, work_seconds)
        except RuntimeError:  # the event loop has closed: nobody waits any more
            logger.debug("dropped %d answers after shutdown", len(outcomes))

    # -- the event loop ----------------------------------------------------------------------------------------------

    def _settle(self, outcomes: list[Outcome[Item, Prepared, Row]], seconds: float, work_seconds: float) -> None:
        num_run = sum(not isinstance(outcome, BaseException) for _, outcome in outcomes)
        self._admission.served(len(outcomes), num_run, seconds, work_seconds)
        for job, outcome in outcomes:
            if job.future.done():  # the caller may have gone away
                continue
            if isinstance(outcome, BaseException):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)


def _step_back() -> None:
    """Let this thread give way to the event loop on a busy core: a refusal that waits for a batch comes too late."""
    with contextlib.suppress(OSError, AttributeError):  # another system, where threads have no priority of their own
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
