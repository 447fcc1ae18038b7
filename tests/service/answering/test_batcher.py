import asyncio
import os
import threading
import time
import types

import pytest

from portcullis.answering.admission import Admission, Limits
from portcullis.answering.batcher import NICENESS, Batcher
from portcullis.errors import (
    ClientGone,
    DeadlineExceeded,
    EngineError,
    Overloaded,
    Unavailable,
)

LIMITS = Limits(max_batch=4, queue_capacity=8, overload_wait_seconds=10.0)


class Engine:
    """Doubles numbers; can be held at a barrier, so that a test decides when a batch ends."""

    def __init__(self):
        self.batches = []
        self.may_run = threading.Event()
        self.may_run.set()
        self.is_running = threading.Event()

    def run(self, items):
        self.is_running.set()
        assert self.may_run.wait(10)
        self.batches.append(list(items))
        return [2 * item for item in items]

    def hold(self):
        self.may_run.clear()
        self.is_running.clear()


def prepare(item):
    if item == "bad":
        raise ValueError("cannot be prepared")
    return item


async def started(batcher, engine, item=1):
    """Submit an item and wait until the engine is busy with it."""
    task = asyncio.create_task(batcher.submit(item))
    await asyncio.to_thread(engine.is_running.wait, 10)
    return task


async def row(awaitable):
    return (await awaitable)[0]


async def test_admission_is_told_what_the_thread_worked_beside_what_a_batch_took(monkeypatch):
    """Whatever keeps the thread from running is no work."""
    told = []
    monkeypatch.setattr(Admission, "served", lambda self, *seconds: told.append(seconds))
    batcher = Batcher(prepare, lambda items: time.sleep(0.2) or items, LIMITS)
    await batcher.submit(1)
    await batcher.close()
    [(num_items, num_run, seconds, work_seconds)] = told
    assert (num_items, num_run) == (1, 1)
    assert seconds >= 0.2
    assert 0 < work_seconds <= seconds - 0.2


async def test_an_idle_batcher_runs_at_once_and_a_busy_one_gathers():
    engine = Engine()
    batcher = Batcher(prepare, engine.run, LIMITS)
    assert await row(batcher.submit(1)) == 2
    engine.hold()
    first = await started(batcher, engine, 2)
    rest = [asyncio.create_task(batcher.submit(n)) for n in (3, 4, 5, 6, 7)]
    await asyncio.sleep(0)
    engine.may_run.set()
    assert [await row(task) for task in (first, *rest)] == [4, 6, 8, 10, 12, 14]
    assert engine.batches == [[1], [2], [3, 4, 5, 6], [7]]
    await batcher.close()


async def test_a_bad_item_fails_alone():
    engine = Engine()
    engine.hold()
    batcher = Batcher(prepare, engine.run, LIMITS)
    first = await started(batcher, engine)
    tasks = [asyncio.create_task(batcher.submit(item)) for item in (2, "bad", 3)]
    await asyncio.sleep(0)
    engine.may_run.set()
    assert [await row(task) for task in (first, tasks[0], tasks[2])] == [2, 4, 6]
    with pytest.raises(ValueError, match="cannot be prepared"):
        await tasks[1]
    assert engine.batches == [[1], [2, 3]]
    await batcher.close()


async def test_a_full_queue_sheds_load_at_once():
    engine, dropped = Engine(), []
    engine.hold()
    batcher = Batcher(prepare, engine.run, LIMITS, on_drop=dropped.append)
    first = await started(batcher, engine)
    waiting = [asyncio.create_task(batcher.submit(n)) for n in range(8)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await batcher.submit(9)
    assert dropped == ["queue_full"]
    engine.may_run.set()
    assert len([await task for task in (first, *waiting)]) == 9
    await batcher.close()


async def test_a_flood_is_refused_before_anything_is_done_for_it(monkeypatch):
    """More offers than are served: some are turned away although the queue has room, the next without a body."""
    clock = types.SimpleNamespace(now=0.0, monotonic=lambda: clock.now, thread_time=lambda: clock.now)
    monkeypatch.setattr("portcullis.answering.batcher.time", clock)  # stands still, whatever the machine does
    limits = Limits(max_batch=1, queue_capacity=8, overload_wait_seconds=1e-9)
    engine, dropped = Engine(), []

    def run(items):
        rows = engine.run(items)
        clock.now += 1
        return rows

    batcher = Batcher(prepare, run, limits, on_drop=dropped.append)
    await batcher.submit(0)  # learns that an item takes some time
    batcher.refuse_if_flooded()
    engine.hold()
    first = await started(batcher, engine)
    offers = [asyncio.create_task(batcher.submit(n)) for n in range(12)]
    await asyncio.sleep(0)
    assert batcher.depth == 7  # with the first, as many as the capacity: what is more than that is excess
    with pytest.raises(Overloaded):
        batcher.refuse_if_flooded()
    engine.may_run.set()
    await first
    outcomes = await asyncio.gather(*offers, return_exceptions=True)
    assert [isinstance(outcome, Overloaded) for outcome in outcomes] == [False] * 7 + [True] * 5
    assert dropped == ["queue_full"] * 6
    await batcher.close()


async def test_a_steady_queue_that_is_served_is_no_flood():
    """Many clients that each wait for their answer keep the queue long, but lose nothing."""
    batcher = Batcher(prepare, Engine().run, Limits(max_batch=4, queue_capacity=40, overload_wait_seconds=1e-9))

    async def client():
        for _ in range(15):
            await batcher.submit(0)

    await asyncio.gather(*(client() for _ in range(32)))
    await batcher.close()


async def test_work_for_a_client_that_has_gone_never_reaches_the_engine():
    engine, dropped = Engine(), []
    engine.hold()
    batcher = Batcher(prepare, engine.run, LIMITS, on_drop=dropped.append)
    first = await started(batcher, engine)
    gone = asyncio.create_task(batcher.submit(2, is_gone=lambda: True))
    cancelled = asyncio.create_task(batcher.submit(3))
    await asyncio.sleep(0)
    cancelled.cancel()
    engine.may_run.set()
    assert await row(first) == 2
    with pytest.raises(ClientGone):
        await gone
    assert await row(batcher.submit(4)) == 8
    assert engine.batches == [[1], [4]]
    assert dropped == ["client_gone", "client_gone"]
    await batcher.close()


async def test_a_deadline_passed_in_the_queue_drops_the_work():
    engine, dropped = Engine(), []
    engine.hold()
    batcher = Batcher(prepare, engine.run, LIMITS, on_drop=dropped.append)
    first = await started(batcher, engine)
    late = asyncio.create_task(batcher.submit(2, deadline=time.monotonic()))
    with pytest.raises(DeadlineExceeded):
        await late  # although the engine hangs
    engine.may_run.set()
    await first
    await batcher.close()
    assert engine.batches == [[1]]
    assert dropped[0] == "deadline"


@pytest.mark.parametrize("outcome", [RuntimeError("boom"), MemoryError(), [1, 2, 3], []])
async def test_the_loop_outlives_any_exception_and_any_wrong_output(outcome):
    answers = iter([outcome, [42]])

    def run(items):
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    batcher = Batcher(prepare, run, LIMITS)
    with pytest.raises((EngineError, RuntimeError, MemoryError)):
        await batcher.submit(1)
    assert await row(batcher.submit(1)) == 42
    await batcher.close()


async def test_closing_answers_what_is_queued_and_refuses_the_rest():
    engine = Engine()
    engine.hold()
    batcher = Batcher(prepare, engine.run, LIMITS)
    tasks = [await started(batcher, engine, 1), *(asyncio.create_task(batcher.submit(n)) for n in (2, 3))]
    await asyncio.sleep(0)
    closing = asyncio.create_task(batcher.close())
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await batcher.submit(4)
    engine.may_run.set()
    assert [await row(task) for task in tasks] == [2, 4, 6]
    await closing


async def test_the_times_of_every_stage_are_kept():
    def slow_prepare(item):
        time.sleep(0.02)
        return item

    def slow_run(items):
        time.sleep(0.03)
        return items

    batcher = Batcher(slow_prepare, slow_run, LIMITS)
    _, job = await batcher.submit(1)
    assert job.prepare_seconds >= 0.02
    assert job.run_seconds >= 0.03
    assert job.queue_seconds >= 0
    await batcher.close()


async def test_the_engines_thread_gives_way_to_the_event_loop():
    batcher = Batcher(prepare, Engine().run, LIMITS)
    await batcher.submit(1)
    engine = os.getpriority(os.PRIO_PROCESS, batcher._thread.native_id)
    assert engine == max(NICENESS, os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    await batcher.close()
