"""An engine that fails or hangs, behind the real pipeline; what the watch makes of it."""

import asyncio
import threading
import time
import types

import pytest
from prometheus_client import CollectorRegistry

from portcullis.answering import engine_watch
from portcullis.answering.admission import Limits
from portcullis.answering.engine_here import EngineHere
from portcullis.answering.engine_watch import MAX_FAILED_BATCHES, EngineWatch, Progress
from portcullis.answering.pipeline import Pipeline
from portcullis.answering.preparing import PreparingPool
from portcullis.answering.served_engine import Load
from portcullis.bundle.engine import Engine
from portcullis.bundle.files import load_bundle
from portcullis.bundle.gate import Gate
from portcullis.drift.rings import RingWriter
from portcullis.errors import EngineError, Unavailable
from portcullis.telemetry.instruments import Metrics
from tests import tiny
from tests.hammer import PATIENCE_SECONDS
from tests.service.pictures import RED

GATE = Gate(None, "mmles", None, tiny.manifest().calibration, -4.0)


class Suspect:
    """A watch over batches that a test makes up, on a clock of its own."""

    def __init__(self, monkeypatch, self_test=lambda: None):
        self.clock = types.SimpleNamespace(now=0.0, monotonic=lambda: self.clock.now)
        monkeypatch.setattr(engine_watch, "time", self.clock)
        self.progress = Progress(0, None)
        self.num_tests = 0
        self._self_test = self_test
        self.watch = EngineWatch(lambda: self.progress, self._test, PATIENCE_SECONDS, lambda cause: None)

    def _test(self):
        self.num_tests += 1
        self._self_test()

    async def look(self, num_failed=0, running_since=None):
        self.progress = Progress(num_failed, running_since)
        return await self.watch.look()


def lost():
    raise EngineError("the device has been lost")


async def test_a_few_failed_batches_are_no_suspicion_and_several_are_tried(monkeypatch):
    suspect = Suspect(monkeypatch, lost)
    assert await suspect.look(num_failed=MAX_FAILED_BATCHES - 1) is None
    assert suspect.num_tests == 0
    assert "the self-test: the device has been lost" in await suspect.look(num_failed=MAX_FAILED_BATCHES)


async def test_an_engine_that_passes_is_forgiven_until_as_many_batches_have_failed_again(monkeypatch):
    suspect = Suspect(monkeypatch)
    failed = [3, 4, 5, 6, 0, 2, 3]  # in a row, up to then; 6 is three more, and a good batch starts anew
    outcomes = [(await suspect.look(num_failed=count), suspect.num_tests) for count in failed]
    assert outcomes == [(None, 1), (None, 1), (None, 1), (None, 2), (None, 2), (None, 2), (None, 3)]


async def test_a_batch_that_runs_for_long_is_tried_once_and_hangs_if_it_does_so_as_long_again(monkeypatch):
    suspect = Suspect(monkeypatch)
    outcomes = []
    for now in (0.5, 1.0, 1.1, 1.5, 2.1, 2.2):
        suspect.clock.now = now * PATIENCE_SECONDS
        outcomes.append((await suspect.look(running_since=0.0), suspect.num_tests))
    assert outcomes[:5] == [(None, 0), (None, 0), (None, 1), (None, 1), (None, 1)]
    assert "a batch hangs" in outcomes[5][0]


async def test_another_long_batch_is_another_suspicion(monkeypatch):
    suspect = Suspect(monkeypatch)
    for start in (0, 10, 20):
        suspect.clock.now = (start + 1.5) * PATIENCE_SECONDS
        assert await suspect.look(running_since=start * PATIENCE_SECONDS) is None
    assert suspect.num_tests == 3


class Breakable(Engine):
    """A real engine that hangs, or fails, from some moment on."""

    fault = None
    num_tests = 0

    def run(self, images):
        if self.fault is not None:
            self.fault()
        return super().run(images)

    def self_test(self):
        super().self_test()
        self.num_tests += 1


@pytest.fixture
async def pipeline_with(models, tmp_path):
    """Makes a pipeline, its engine, and the queue of what is said of it."""
    bundle, said = load_bundle(models / "tiny" / "1"), asyncio.Queue()
    engine, opened = Breakable(bundle), []

    def make(patience_seconds):
        load = Load(Limits(8, 128, 1.0), 10_000, inline_decode_bytes=65536, patience_seconds=patience_seconds)
        ring, metrics = RingWriter(tmp_path / "ring"), Metrics(CollectorRegistry())
        opened.append(Pipeline(bundle, EngineHere(engine), load, PreparingPool(1), metrics, ring, said.put_nowait))
        return opened[-1], engine, said

    yield make
    await opened[-1].close()


async def test_a_hung_engine_is_noticed_and_whoever_waits_is_told_at_once(pipeline_with):
    pipeline, engine, said = pipeline_with(patience_seconds=0.1)
    for_ever = threading.Event()
    engine.fault = for_ever.wait
    waiting = [asyncio.create_task(pipeline.predict(RED, GATE, deadline=time.monotonic() + 3600)) for _ in range(20)]
    cause = await said.get()
    assert cause.startswith("the engine of tiny/1 is broken: a batch has been running")
    assert "no answer within" in cause
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 20
    with pytest.raises(Unavailable, match="being replaced"):
        await pipeline.predict(RED, GATE)
    await pipeline.close()  # does not wait for it
    assert engine._batches is not None  # nor takes away what the lost thread may still use
    for_ever.set()


async def test_an_engine_that_fails_is_noticed_after_several_batches(pipeline_with):
    pipeline, engine, said = pipeline_with(PATIENCE_SECONDS)
    engine.fault = lost
    for _ in range(MAX_FAILED_BATCHES):
        with pytest.raises((EngineError, Unavailable)):
            await pipeline.predict(RED, GATE)
    assert "then the self-test: the device has been lost" in await said.get()


async def test_failures_of_an_engine_that_passes_its_self_test_end_nothing(pipeline_with):
    """Whatever it is that these batches have."""
    pipeline, engine, said = pipeline_with(PATIENCE_SECONDS)
    engine.fault = lambda: lost() if threading.current_thread().name == "engine" else None
    while engine.num_tests < 2:
        with pytest.raises(EngineError):
            await pipeline.predict(RED, GATE)
    engine.fault = None
    assert (await pipeline.predict(RED, GATE)).row.class_index == 0
    assert said.empty()
