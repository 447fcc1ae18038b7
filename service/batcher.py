"""Gathers what arrives while a batch runs into the next batch. Knows no images, HTTP or gate.

There is no timer: an idle batcher starts at once, a busy one makes larger batches. One thread prepares the items (one
that fails, fails alone) and runs them, so on a one-core worker a request crosses threads only twice. The queue is
bounded, and while more is offered than served only what will be answered soon is admitted (service.admission).
"""

import asyncio
import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from service.admission import Admission, Limits
from service.errors import DeadlineExceeded, EngineError, Overloaded, ServiceError, Unavailable

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")
Row = TypeVar("Row")

DROP_REASONS = ("queue_full", "client_gone", "deadline")
SWEEP_SECONDS = 0.05
NICENESS = 10


@dataclass(slots=True, eq=False)
class Job(Generic[Item, Row]):
    """One item on its way through the batcher, with the times that it took."""

    item: Item
    deadline: float
    is_gone: Callable[[], bool]
    future: "asyncio.Future[Row]"
    submitted: float
    prepare_seconds: float = 0.0
    queue_seconds: float = 0.0
    run_seconds: float = 0.0


class Batcher(Generic[Item, Prepared, Row]):
    """`submit` from the event loop; `prepare` and `run` happen on a thread of its own."""

    def __init__(
        self,
        prepare: Callable[[Item], Prepared],
        run: Callable[[list[Prepared]], Sequence[Row]],
        limits: Limits,
        on_batch: Callable[[int], None] = lambda size: None,
        on_drop: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._prepare, self._run = prepare, run
        self._max_batch, self._admission = limits.max_batch, Admission(limits, time.monotonic())
        self._on_batch, self._on_drop = on_batch, on_drop
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Job[Item, Row] | None] = SimpleQueue()
        self._pending: set[Job[Item, Row]] = set()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()
        self._sweeper = self._loop.create_task(self._sweep())

    @property
    def depth(self) -> int:
        """Items that wait, not counting those that run."""
        return self._queue.qsize()

    def refuse_if_flooded(self) -> None:
        """Raise Overloaded while a flood lasts, before its body is read: refusing must cost less than serving."""
        now, num_waiting = time.monotonic(), self._queue.qsize()
        if self._admission.is_hopeless(num_waiting, now):
            self._admission.offer(num_waiting, now)
            self._refuse(num_waiting)

    async def submit(
        self, item: Item, deadline: float = math.inf, is_gone: Callable[[], bool] = lambda: False
    ) -> tuple[Row, Job[Item, Row]]:
        """The row of one item. Raises Overloaded at once rather than let a backlog grow."""
        now = time.monotonic()
        if self._is_closed:
            raise Unavailable("this model is being unloaded; try again")
        num_waiting = self._queue.qsize()
        if not self._admission.offer(num_waiting, now):
            self._refuse(num_waiting)
        job: Job[Item, Row] = Job(item, deadline, is_gone, self._loop.create_future(), now)
        self._pending.add(job)
        try:
            self._queue.put(job)
            return await job.future, job
        finally:
            self._pending.discard(job)

    async def close(self) -> None:
        """Finish what is queued, then end the thread."""
        self._is_closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._sweeper.cancel()

    def _refuse(self, num_waiting: int) -> None:
        self._on_drop("queue_full")
        raise Overloaded(f"{num_waiting} images are waiting already; try again in a moment")

    # -- the engine's thread -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        _step_back()
        while jobs := self._take():
            try:
                self._run_batch(jobs)
            except BaseException as error:  # the loop must outlive any batch
                logger.exception("a batch of %d failed", len(jobs))
                self._deliver([(job, EngineError(f"the batch failed: {type(error).__name__}")) for job in jobs], 0.0)

    def _take(self) -> list[Job[Item, Row]]:
        """What waits, up to a batch; nothing once the batcher is closed and the queue empty: None is its last."""
        jobs: list[Job[Item, Row]] = []
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

    def _run_batch(self, jobs: list[Job[Item, Row]]) -> None:
        started = time.monotonic()
        ready: list[Job[Item, Row]] = []
        prepared: list[Prepared] = []
        outcomes: list[tuple[Job[Item, Row], Row | BaseException]] = []
        for job in jobs:
            job.queue_seconds = started - job.submitted
            if job.future.done() or job.is_gone():
                self._on_drop("client_gone")
                outcomes.append((job, Unavailable("the client has gone")))
            elif started > job.deadline:
                self._on_drop("deadline")
                outcomes.append((job, DeadlineExceeded("the deadline passed while the image waited")))
            else:
                self._prepare_alone(job, ready, prepared, outcomes)
        if ready:
            outcomes += self._run_together(ready, prepared)
        self._deliver(outcomes, time.monotonic() - started)

    def _prepare_alone(
        self,
        job: Job[Item, Row],
        ready: list[Job[Item, Row]],
        prepared: list[Prepared],
        outcomes: list[tuple[Job[Item, Row], Row | BaseException]],
    ) -> None:
        started = time.monotonic()
        try:
            prepared.append(self._prepare(job.item))
            ready.append(job)
        except Exception as error:
            outcomes.append((job, error))
        job.prepare_seconds += time.monotonic() - started

    def _run_together(
        self, jobs: list[Job[Item, Row]], prepared: list[Prepared]
    ) -> list[tuple[Job[Item, Row], Row | BaseException]]:
        started = time.monotonic()
        try:
            rows = self._run(prepared)
            if len(rows) != len(jobs):
                raise EngineError(f"expected {len(jobs)} rows from the engine, got {len(rows)}")
        except Exception as error:
            if not isinstance(error, ServiceError):
                logger.exception("the engine failed on a batch of %d", len(jobs))
            return [(job, error) for job in jobs]
        seconds = time.monotonic() - started
        self._on_batch(len(jobs))
        for job in jobs:
            job.run_seconds = seconds
        return list(zip(jobs, rows, strict=True))

    def _deliver(self, outcomes: list[tuple[Job[Item, Row], Row | BaseException]], seconds: float) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, outcomes, seconds)
        except RuntimeError:  # the event loop has closed: nobody waits any more
            logger.debug("dropped %d answers after shutdown", len(outcomes))

    # -- the event loop ----------------------------------------------------------------------------------------------

    def _settle(self, outcomes: list[tuple[Job[Item, Row], Row | BaseException]], seconds: float) -> None:
        self._admission.served(len(outcomes), seconds)
        for job, outcome in outcomes:
            if job.future.done():  # the caller may have gone away
                continue
            if isinstance(outcome, BaseException):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)

    async def _sweep(self) -> None:
        """Answer 504 in time even where the engine hangs."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = time.monotonic()
            for job in [job for job in self._pending if now > job.deadline]:
                if not job.future.done():
                    self._on_drop("deadline")
                    job.future.set_exception(DeadlineExceeded("no answer within the deadline"))


def _step_back() -> None:
    """Let this thread give way to the event loop on a busy core: a refusal that waits for a batch comes too late."""
    with contextlib.suppress(OSError, AttributeError):  # another system, where threads have no priority of their own
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
