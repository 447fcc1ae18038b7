"""How batches get into a graph: buckets, a session each, and memory that is bound once. On the CPU's provider here."""

import functools
import threading

import numpy as np
import pytest

from portcullis.bundle.batches import BoundMemory, Buckets, PlainMemory, Signature
from portcullis.bundle.buckets import bucket_of, bucket_sizes
from portcullis.bundle.device_faults import engine_error
from portcullis.bundle.engine import Engine
from portcullis.bundle.files import load_bundle
from portcullis.bundle.providers import CPU, EngineOptions
from portcullis.bundle.session import device_value, open_session
from portcullis.errors import DeviceLost, EngineError, OutOfDeviceMemory
from tests import tiny

SIGNATURE = Signature("images", (tiny.SIZE, tiny.SIZE, 3), {"probabilities": (3,), "score": ()})
BOUND = functools.partial(BoundMemory, signature=SIGNATURE, make_value=functools.partial(device_value, device="cpu"))
PLAIN = functools.partial(PlainMemory, signature=SIGNATURE)


def pictures(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, tiny.SIZE, tiny.SIZE, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("max_batch", "sizes"),
    [
        (1, (1,)),
        (4, (1, 4)),
        (8, (1, 8)),
        (64, (1, 8, 32, 64)),
        (100, (1, 8, 32, 64, 100)),
        (512, (1, 8, 32, 64, 128, 256, 512)),
    ],
)
def test_buckets_grow_up_to_the_largest_batch(max_batch, sizes):
    assert bucket_sizes(max_batch) == sizes
    assert [bucket_of(count, sizes) for count in range(1, max_batch + 1)] == [
        min(size for size in sizes if size >= count) for count in range(1, max_batch + 1)
    ]


class CountingSession:
    """A real session that remembers which batch sizes it was given."""

    def __init__(self, session):
        self._session, self.seen = session, []

    def run(self, names, feeds):
        self.seen.append(len(feeds["images"]))
        return self._session.run(names, feeds)


@pytest.mark.parametrize("make_memory", [PLAIN, BOUND], ids=["plain", "bound"])
def test_a_batch_in_a_bucket_answers_as_it_does_alone(models, make_memory):
    bundle = load_bundle(models / "tiny" / "1")
    sessions = {size: open_session(bundle, CPU, EngineOptions()) for size in (1, 8)}
    buckets = Buckets(sessions, make_memory)
    for count in (1, 2, 8, 5, 19, 1):  # rows of the batch before stay in the memory, and in no answer
        images = pictures(count, seed=count)
        probabilities, scores = buckets.run(images)
        assert probabilities.shape == (count, 3)
        np.testing.assert_allclose(probabilities, tiny.answers(images)[0], atol=1e-5)
        np.testing.assert_allclose(scores, tiny.answers(images)[1], atol=1e-5)


def test_every_session_sees_one_batch_size_only(models):
    session = open_session(load_bundle(models / "tiny" / "1"), CPU, EngineOptions())
    sessions = {size: CountingSession(session) for size in (1, 8)}
    buckets = Buckets(sessions, PLAIN)
    for count in (3, 1, 8, 2, 1):
        buckets.run(pictures(count))
    assert {size: set(counting.seen) for size, counting in sessions.items()} == {1: {1}, 8: {8}}


class SlowSession:
    """Two runs must be inside at once before either may go on."""

    def __init__(self):
        self.both = threading.Barrier(2)

    def run(self, names, feeds):
        self.both.wait(60)
        images = feeds["images"].copy()
        self.both.wait(60)
        return [images[:, 0, 0].astype(np.float32), images[:, 0, 0, 0].astype(np.float32)]


def test_two_batches_of_one_size_are_in_flight_with_memory_of_their_own():
    buckets, found = Buckets({4: SlowSession()}, PLAIN), {}

    def run(value):
        found[value] = buckets.run_filled(4, lambda rows: rows.fill(value))[1].tolist()

    threads = [threading.Thread(target=run, args=(value,)) for value in (3, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {3: [3.0] * 4, 9: [9.0] * 4}


def test_an_engine_on_a_device_that_plans_anew_has_a_session_a_bucket_and_warms_them_all(models, monkeypatch):
    opened = []

    def open_counted(bundle, provider, options):
        opened.append(CountingSession(open_session(bundle, CPU, options)))
        opened[-1].get_inputs = opened[-1]._session.get_inputs
        opened[-1].get_outputs = opened[-1]._session.get_outputs
        return opened[-1]

    monkeypatch.setattr("portcullis.bundle.engine.open_session", open_counted)
    bundle = load_bundle(models / "tiny" / "1")
    engine = Engine(bundle, EngineOptions(max_batch=32), "simulated:")
    engine.self_test()
    engine.warm_up()
    assert sorted(tuple(set(session.seen)) for session in opened) == [(1,), (8,), (32,)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA failure 2: out of memory ; GPU=0 ; hostname=h", OutOfDeviceMemory),
        ("BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 9", OutOfDeviceMemory),
        ("Available memory of 1 is smaller than requested bytes of 2", OutOfDeviceMemory),
        ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0", OutOfDeviceMemory),
        ("CUDA failure 700: an illegal memory access was encountered ; GPU=0", DeviceLost),
        ("CUDA failure 719: unspecified launch failure", DeviceLost),
        ("CUDA failure 214: uncorrectable ECC error encountered", DeviceLost),
        ("CUDA failure 1: invalid argument", EngineError),
        ("Non-zero status code returned while running Conv node", EngineError),
    ],
)
def test_what_a_provider_says_tells_a_full_device_from_a_lost_one(text, kind):
    assert type(engine_error(RuntimeError(text), 8)) is kind
