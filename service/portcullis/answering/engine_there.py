"""An engine in a process of its own, on a device, as a front reaches it: admission, slots and answers.

Pixels are written to memory that both processes map (device/lane.py); batches are made there, of what all fronts send.

While that process is away everybody is refused with 503, and the lane is opened again as soon as there is another.
"""

import asyncio
import itertools
import logging
import math
import operator
import time
from collections.abc import Callable
from typing import Any, NoReturn, cast

import numpy as np

from portcullis.answering.admission import Admission, Line
from portcullis.answering.device.lane import FAILED, OK, REQUEST
from portcullis.answering.device.link import FrontLane, Link
from portcullis.answering.job import Job
from portcullis.answering.prediction import FullRow
from portcullis.answering.rows import rows_of
from portcullis.answering.served_engine import ImageJob, Item, Work
from portcullis.answering.sweeping import sweep
from portcullis.bundle.files import Bundle
from portcullis.bundle.preprocess import Pixels
from portcullis.bundle.shift import Shifts
from portcullis.errors import EngineError, Overloaded, ServiceError, Unavailable

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
AWAY = "the engine has failed and is being replaced; try again"
_FAILURES = {FAILED: "the engine failed on a batch"}
_NO_MEMORY = "the device has too little memory for this batch"
_batch_of = operator.itemgetter(1, 2, 3)


class EngineThere:
    """The lane of one version, and the jobs on it."""

    def __init__(self, link: Link, bundle: Bundle) -> None:
        self._link, self._bundle = link, bundle
        self._lane: FrontLane | None = link.open(bundle)
        self._facts = self._lane.facts
        self.absence: str | None = None
        self._closed: str | None = None
        self._waiting: set[ImageJob] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def asked(self) -> tuple[str, ...]:
        return self._facts.asked

    @property
    def providers(self) -> tuple[str, ...]:
        return self._facts.providers

    @property
    def refusals(self) -> tuple[str, ...]:
        return self._facts.refusals

    @property
    def shifts(self) -> Shifts:
        return self._facts.shifts

    @property
    def depth(self) -> int:
        return self._link.waiting_of(len(self._waiting))

    def begin(self, work: Work) -> None:
        assert self._lane is not None
        self._work, self._loop = work, asyncio.get_running_loop()
        self._admission = Admission(work.load.limits, time.monotonic(), self._link.num_sharing)
        self._listen(self._lane)
        self._tasks.append(asyncio.create_task(sweep(self._waiting, work.observe.drop)))

    def refuse_if_flooded(self, is_large: bool = False) -> None:
        if not self._admission.is_flooded:
            return
        now, line = time.monotonic(), self._link.line()
        pool = self._work.pool.line() if is_large else None
        if self._admission.is_hopeless(line, now, pool):
            self._refuse(line)

    async def submit(
        self, item: Item, deadline: float = math.inf, is_gone: Callable[[], bool] = lambda: False
    ) -> tuple[FullRow, ImageJob]:
        now, lane, work = time.monotonic(), self._lane_now(), self._work
        line, pool = self._link.line(), work.pool.line() if work.is_large(item) else None
        if not self._admission.offer(line, now, pool, deadline) or not lane.free:
            self._refuse(line)
        job: ImageJob = Job(item, deadline, is_gone, self._loop.create_future(), now)
        slot = self._admit(lane, job)
        if pool is not None:
            work.pool.submit(lambda: self._prepare(lane, slot, job, is_beside=True))
        else:
            self._prepare(lane, slot, job)
        return await self._answer(job)

    def rows(self, images: list[Pixels]) -> list[FullRow]:
        asked = [asyncio.run_coroutine_threadsafe(self._ask(image), self._loop) for image in images]
        return [each.result() for each in asked]

    async def finish(self) -> None:
        self._closed = self._closed or "this model is being unloaded; try again"
        if self._waiting:
            await asyncio.wait([job.future for job in self._waiting])
        for task in self._tasks:
            task.cancel()
        if self._lane is not None:
            self._loop.remove_reader(self._lane.stream.fileno())

    def close(self) -> None:
        if self._lane is not None:
            self._lane.stream.close()

    # -- one image ---------------------------------------------------------------------------------------------------

    def _lane_now(self) -> FrontLane:
        if self._closed is not None or self._lane is None:
            raise Unavailable(self._closed or AWAY)
        return self._lane

    def _refuse(self, line: Line) -> NoReturn:
        self._work.observe.drop("queue_full")
        raise Overloaded(f"{line.num_waiting} images are waiting already; try again in a moment")

    async def _ask(self, image: Pixels) -> FullRow:
        """Past the queue: for comparisons, of which there is one at a time."""
        lane = self._lane_now()
        if not lane.free:
            raise Overloaded("no slot is free")
        job: ImageJob = Job(image, math.inf, lambda: False, self._loop.create_future(), time.monotonic())
        self._prepare(lane, self._admit(lane, job), job)
        return (await self._answer(job))[0]

    def _admit(self, lane: FrontLane, job: ImageJob) -> int:
        slot = lane.free.pop()
        lane.jobs[slot] = job
        self._link.count(1)
        return slot

    async def _answer(self, job: ImageJob) -> tuple[FullRow, ImageJob]:
        self._waiting.add(job)
        try:
            return await job.future, job
        finally:
            self._waiting.discard(job)

    def _prepare(self, lane: FrontLane, slot: int, job: ImageJob, is_beside: bool = False) -> bool:
        """On the event loop, or on a thread of the pool; whether there was something to do."""
        if is_beside:
            job.prepare_wait_seconds = time.monotonic() - job.submitted
        refusal = job.prepare(self._work.prepare, self._work.observe.drop)
        if refusal is None:
            try:
                lane.slots.pixels[slot] = cast(Pixels, job.prepared)
                lane.stream.send(slot.to_bytes(REQUEST.itemsize, "little"))
            except OSError:
                refusal = Unavailable(AWAY)
            except ValueError as error:
                refusal = EngineError(f"expected pixels of the model's size: {error}")
        if refusal is not None:
            self._loop.call_soon_threadsafe(self._give_up, lane, slot, refusal)
        return job.prepared is not None

    def _give_up(self, lane: FrontLane, slot: int, reason: Exception) -> None:
        """An image that goes no further, before the engine had it."""
        if slot in lane.jobs:  # the lane may have ended meanwhile
            self._admission.served(1, 0, 0.0)
            self._release(lane, [slot], [reason])

    # -- answers -----------------------------------------------------------------------------------------------------

    def _listen(self, lane: FrontLane) -> None:
        self._lane, self._facts, self.absence = lane, lane.facts, None
        self._loop.add_reader(lane.stream.fileno(), self._on_readable, lane)

    def _on_readable(self, lane: FrontLane) -> None:
        records = lane.stream.receive()
        if records is None:
            self._lose(lane)
            return
        for (status, num_run, seconds), batch in itertools.groupby(records.tolist(), _batch_of):
            self._settle(lane, [record[0] for record in batch], status, num_run, seconds)

    def _settle(self, lane: FrontLane, slots: list[int], status: int, num_run: int, seconds: float) -> None:
        """The images of one batch that were ours."""
        self._admission.served(len(slots), num_run if status == OK else 0, seconds)
        if status != OK:
            self._release(lane, slots, [EngineError(_FAILURES.get(status, _NO_MEMORY))] * len(slots))
            return
        now = time.monotonic()
        for slot in slots:
            job = lane.jobs[slot]
            job.run_seconds = seconds
            job.queue_seconds = max(0.0, now - job.submitted - job.prepare_seconds - seconds)
        self._release(lane, slots, rows_of(*lane.slots.read_answers(np.asarray(slots))))

    def _release(self, lane: FrontLane, slots: list[int], outcomes: "list[Any]") -> None:
        """Let those who wait have their rows, or errors; their slots are free again."""
        self._link.count(-len(slots))
        for slot, outcome in zip(slots, outcomes, strict=True):
            future = lane.jobs.pop(slot).future
            if future.done():  # the caller may have gone away
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        lane.free += slots

    def _lose(self, lane: FrontLane) -> None:
        """The engine's process has ended: whoever waits is told at once, and another is waited for."""
        self._loop.remove_reader(lane.stream.fileno())
        lane.stream.close()
        self._lane, self.absence = None, AWAY
        lost = list(lane.jobs)
        logger.error("%s: the engine's process has gone with %d images", self._bundle.label, len(lost))
        self._release(lane, lost, [Unavailable(AWAY)] * len(lost))
        self._tasks.append(asyncio.create_task(self._open_again()))

    async def _open_again(self) -> None:
        said = ""
        while self._closed is None:
            try:
                self._listen(await asyncio.to_thread(self._link.open, self._bundle))
            except ServiceError as error:
                if str(error) != said:
                    logger.error("%s: cannot be opened again: %s; trying again", self._bundle.label, error)
                said = str(error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                logger.info("%s: the engine is back", self._bundle.label)
                return
