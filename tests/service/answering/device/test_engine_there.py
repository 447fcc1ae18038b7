"""A front's side of an engine in another process; here that process is a thread, and its engine does as it is told."""

import asyncio
import math
import os
import socket
import threading
import time

import numpy as np
import pytest

from portcullis.answering.admission import Limits
from portcullis.answering.device import board
from portcullis.answering.device.board import Board
from portcullis.answering.device.graphs import EngineLane
from portcullis.answering.device.lane import REQUEST, Facts, Refused, Slots, Stream, hear, say
from portcullis.answering.device.link import Link
from portcullis.answering.engine_there import EngineThere
from portcullis.answering.observer import Observer
from portcullis.answering.preparing import PreparingPool
from portcullis.answering.served_engine import Load, Work
from portcullis.bundle.files import load_bundle
from portcullis.bundle.shift import Shifts
from portcullis.drift.rings import RingWriter
from portcullis.errors import BadImage, BundleError, DeadlineExceeded, EngineError, Overloaded, Unavailable
from tests import tiny
from tests.service.answering.device.lanes import PATIENCE_SECONDS, Machine, ObedientEngine

CAPACITY = 32
NUM_SLOTS = 48
FACTS = Facts(("auto",), ("simulated:",), (), Shifts(0.5))


class EngineThread:
    """Takes lanes in like an engine process."""

    def __init__(self, machine):
        self.machine, self.refusal, self.lanes = machine, None, []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind("")
        self.listener.listen()
        self.address = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            hello, [memory] = hear(connection)
            slots = Slots(memory, tiny.manifest(), hello.num_slots)
            os.close(memory)
            if self.refusal is not None:
                say(connection, self.refusal)
                connection.close()
                continue
            say(connection, FACTS)
            self.lanes.append((connection, EngineLane(Stream(connection, REQUEST), slots, self.machine.graph)))
            self.machine.serving.inbox.add(self.lanes[-1][1])

    def die(self):
        """As the kernel does for a process: every connection ends."""
        for connection, _ in self.lanes:
            connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def prepare(item):
    if isinstance(item, np.ndarray):
        return item
    if item.startswith(b"bad"):
        raise BadImage("cannot be decoded")
    return np.full((tiny.SIZE, tiny.SIZE, 3), item[0], np.uint8)


@pytest.fixture
def machine():
    with Machine(ObedientEngine(), max_batch=8) as machine:
        yield machine


@pytest.fixture
def thread(machine):
    thread = EngineThread(machine)
    yield thread
    thread.close()


@pytest.fixture
def page():
    return Board(board.make(2))


@pytest.fixture
async def engine(machine, thread, page, models, tmp_path):
    bundle = load_bundle(models / "tiny" / "1")
    engine = EngineThere(Link(thread.address, page, 0, NUM_SLOTS), bundle)
    load = Load(Limits(8, CAPACITY, 10.0), max_pixels=10_000, inline_decode_bytes=4)
    observe = Observer(bundle.manifest, machine.metrics, RingWriter(tmp_path / "ring"))
    engine.begin(Work(prepare, lambda item: len(item) > 4, load, PreparingPool(1), observe, lambda cause: None))
    yield engine
    machine.graph.engine.may_run.set()
    await engine.finish()
    engine.close()


async def until(condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def score(awaitable):
    return (await awaitable)[0].score


async def test_answers_come_to_those_who_asked_and_slots_and_counts_are_given_back(engine, page):
    items = [bytes([number]) * (1 if number % 2 else 9) for number in range(20)]  # on the event loop, and beside it
    assert await asyncio.gather(*(score(engine.submit(item)) for item in items)) == list(range(20))
    _, job = await engine.submit(b"\x07")
    assert job.run_seconds > 0
    assert sorted(engine._lane.free) == list(range(NUM_SLOTS))
    assert page.num_pending() == 0
    assert (engine.providers, engine.shifts, engine.absence) == (FACTS.providers, Shifts(0.5), None)
    rows = await asyncio.to_thread(engine.rows, [np.full((tiny.SIZE, tiny.SIZE, 3), 9, np.uint8)])
    assert rows[0].score == 9


async def test_a_bad_image_and_one_that_nobody_waits_for_cost_no_slot(engine, machine, page):
    for item in (b"bad", b"bad and large"):
        with pytest.raises(BadImage):
            await engine.submit(item)
    machine.graph.engine.may_run.clear()
    leaving = asyncio.create_task(engine.submit(b"\x01"))
    await until(lambda: page.num_pending() == 1)
    leaving.cancel()
    machine.graph.engine.may_run.set()
    await until(lambda: len(engine._lane.free) == NUM_SLOTS)
    assert page.num_pending() == 0
    assert await score(engine.submit(b"\x02")) == 2


async def test_admission_sees_what_other_fronts_have_sent(engine, page):
    page.say_pending(1, CAPACITY)
    with pytest.raises(Overloaded):
        await engine.submit(b"\x01")
    page.say_pending(1, CAPACITY - 1)
    assert await score(engine.submit(b"\x01")) == 1
    page.say_running(8, time.monotonic())  # those that run do not wait
    page.say_pending(1, CAPACITY + 7)
    assert await score(engine.submit(b"\x01")) == 1


async def test_a_deadline_is_kept_where_the_engine_is_not(engine, machine):
    machine.graph.engine.may_run.clear()
    with pytest.raises(DeadlineExceeded):
        await engine.submit(b"\x01", deadline=time.monotonic() + 0.1)


async def test_while_the_engines_process_is_away_all_are_told_so_and_then_served_again(engine, machine, thread, page):
    machine.graph.engine.may_run.clear()
    waiting = asyncio.create_task(engine.submit(b"\x01"))
    await until(lambda: page.num_pending() == 1)
    thread.refusal = Refused(EngineError.code, "cuda does not start here")
    thread.die()
    with pytest.raises(Unavailable, match="being replaced"):
        await waiting
    assert (page.num_pending(), engine.absence is None) == (0, False)
    with pytest.raises(Unavailable, match="being replaced"):
        await engine.submit(b"\x01")
    thread.refusal = None
    machine.graph.engine.may_run.set()
    await until(lambda: engine.absence is None)
    assert await score(engine.submit(b"\x03")) == 3


async def test_why_a_bundle_is_not_opened_is_told(machine, thread, page, models):
    link = Link(thread.address, page, 0, NUM_SLOTS)
    for code, kind in ((BundleError.code, BundleError), (EngineError.code, EngineError)):
        thread.refusal = Refused(code, "because")
        with pytest.raises(kind, match="because"):
            await asyncio.to_thread(EngineThere, link, load_bundle(models / "tiny" / "1"))


async def test_a_front_that_ends_waits_for_no_engine_process(page, models):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("")
    listener.listen()  # and nobody answers
    link = Link(listener.getsockname(), page, 0, NUM_SLOTS)
    opening = asyncio.create_task(asyncio.to_thread(link.open, load_bundle(models / "tiny" / "1")))
    await asyncio.sleep(0)
    link.close()
    with pytest.raises(EngineError, match="gone"):
        await asyncio.wait_for(opening, PATIENCE_SECONDS)
    listener.close()


async def test_a_failed_batch_is_an_engine_error(engine, machine):
    machine.graph.engine.error = EngineError("no")
    with pytest.raises(EngineError, match="failed on a batch"):
        await engine.submit(b"\x01", math.inf)
