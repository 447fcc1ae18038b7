"""One pipeline with a real engine: who is admitted, who is decoded, and when."""

import asyncio
import threading
import time
import types

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from portcullis.answering import pipeline as pipelines
from portcullis.answering.admission import Limits
from portcullis.answering.engine_here import EngineHere
from portcullis.answering.pipeline import Pipeline
from portcullis.answering.preparing import PreparingPool
from portcullis.answering.served_engine import Load
from portcullis.bundle.engine import Engine
from portcullis.bundle.files import load_bundle
from portcullis.bundle.promises import choose
from portcullis.drift.rings import RingWriter
from portcullis.errors import BadImage, ClientGone, DeadlineExceeded, Overloaded
from portcullis.telemetry.instruments import Metrics
from tests import tiny
from tests.service.pictures import BROKEN, RED

GATE = choose("-4.0", tiny.manifest())
CAPACITY = 128


class SlowDecoding:
    """Decodes, but only when it may; counts."""

    def __init__(self, decode):
        self._decode = decode
        self.num_begun = 0
        self.may_go_on = threading.Event()
        self.has_begun = threading.Event()

    def __call__(self, *arguments):
        self.num_begun += 1
        self.has_begun.set()
        assert self.may_go_on.wait(60)
        return self._decode(*arguments)


@pytest.fixture
def decoding(monkeypatch):
    decoding = SlowDecoding(pipelines.decode)
    monkeypatch.setattr(pipelines, "decode", decoding)
    return decoding


@pytest.fixture
async def pipeline(models, tmp_path, decoding):
    """Everything is large: nothing is decoded on the engine's own thread."""
    load = Load(Limits(8, CAPACITY, 0.004), max_pixels=10_000, inline_decode_bytes=0)
    bundle, metrics = load_bundle(models / "tiny" / "1"), Metrics(CollectorRegistry())
    ring = RingWriter(tmp_path / "ring")
    pipeline = Pipeline(bundle, EngineHere(Engine(bundle)), load, PreparingPool(1), metrics, ring)
    pipeline.metrics = metrics
    yield pipeline
    decoding.may_go_on.set()
    await pipeline.close()


async def ask(pipeline, count, **options):
    """So many clients at once; their tasks, once all have been admitted or refused."""
    tasks = [asyncio.create_task(pipeline.predict(RED, GATE, **options)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def refused(tasks):
    return [task for task in tasks if task.done() and isinstance(task.exception(), Overloaded)]


async def test_large_images_are_admitted_before_they_are_decoded(pipeline, decoding):
    tasks = await ask(pipeline, 200)
    assert len(refused(tasks)) == 200 - CAPACITY  # at once, with not one image decoded
    assert pipeline.queue_depth == CAPACITY
    decoding.may_go_on.set()
    answers = await asyncio.gather(*(task for task in tasks if task not in refused(tasks)))
    assert len(answers) == decoding.num_begun == CAPACITY


async def test_nothing_is_decoded_for_clients_that_have_gone(pipeline, decoding):
    gone = threading.Event()
    tasks = await ask(pipeline, 100, is_gone=gone.is_set)
    await asyncio.to_thread(decoding.has_begun.wait, 60)
    gone.set()
    decoding.may_go_on.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert decoding.num_begun == 1
    assert [type(outcome) for outcome in outcomes] == [ClientGone] * 100


async def test_nothing_is_decoded_after_its_deadline_and_the_refusal_does_not_wait_for_the_pool(pipeline, decoding):
    first = await ask(pipeline, 1)
    await asyncio.to_thread(decoding.has_begun.wait, 60)
    late = await ask(pipeline, 20, deadline=0.0)
    outcomes = await asyncio.gather(*late, return_exceptions=True)  # while the pool stands still
    assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded] * 20
    decoding.may_go_on.set()
    await asyncio.gather(*first)
    assert decoding.num_begun == 1


async def test_waiting_for_the_pool_is_waiting_in_the_queue(pipeline, decoding, monkeypatch):
    """On a clock of its own: decoding the first takes 10 s, in which the second waits; its own takes no time."""
    clock = types.SimpleNamespace(now=round(time.monotonic()), monotonic=lambda: clock.now, thread_time=lambda: 0.0)
    for module in ("batcher", "job", "preparing"):
        monkeypatch.setattr(f"portcullis.answering.{module}.time", clock)
    tasks = await ask(pipeline, 2)
    await asyncio.to_thread(decoding.has_begun.wait, 60)
    clock.now += 10
    decoding.may_go_on.set()
    first, second = await asyncio.gather(*tasks)
    assert (first.queue_seconds, first.decode_seconds) == (0, 10)
    assert (second.queue_seconds, second.decode_seconds) == (10, 0)
    assert (first.decode_wait_seconds, second.decode_wait_seconds) == (0, 10)


async def test_the_time_in_which_the_engine_runs_is_counted(pipeline, decoding, monkeypatch):
    clock = types.SimpleNamespace(now=round(time.monotonic()), monotonic=lambda: clock.now)
    monkeypatch.setattr("portcullis.answering.engine_here.time", clock)
    run = pipeline.engine._engine.run

    def slowly(images):
        clock.now += 3
        return run(images)

    monkeypatch.setattr(pipeline.engine._engine, "run", slowly)
    decoding.may_go_on.set()
    await asyncio.gather(*await ask(pipeline, 1))
    await asyncio.gather(*await ask(pipeline, 1))
    labels = {"model": "tiny", "version": "1"}
    assert pipeline.metrics.registry.get_sample_value("portcullis_engine_busy_seconds_total", labels) == 6


async def test_a_large_image_that_is_none_fails_alone(pipeline, decoding):
    decoding.may_go_on.set()
    broken = asyncio.create_task(pipeline.predict(BROKEN, GATE))
    answers = await asyncio.gather(*await ask(pipeline, 5))
    with pytest.raises(BadImage):
        await broken
    assert {answer.row.class_index for answer in answers} == {0}


async def test_closing_answers_what_waits_for_the_pool(pipeline, decoding):
    tasks = await ask(pipeline, 5)
    closing = asyncio.create_task(pipeline.close())
    await asyncio.sleep(0)
    decoding.may_go_on.set()
    assert len(await asyncio.gather(*tasks)) == 5
    await closing


async def test_a_call_of_more_images_than_the_queue_holds_takes_turns_with_itself(pipeline):
    images = [np.full((tiny.SIZE, tiny.SIZE, 3), (230, 20, 20), np.uint8)] * (5 * CAPACITY)
    answers = await pipeline.run_batch(images, GATE)
    assert [prediction.row.class_index for prediction in answers] == [0] * len(images)
