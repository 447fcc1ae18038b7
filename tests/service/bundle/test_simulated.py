"""The simulated device: its time, its one batch at a time, and its place out of users' way."""

import threading
import time

import numpy as np
import pytest

from portcullis.bundle import providers, shift
from portcullis.bundle.engine import start
from portcullis.bundle.files import load_bundle
from portcullis.bundle.providers import EngineOptions
from portcullis.bundle.simulated import Costs, SimulatedSession, costs_of
from portcullis.errors import EngineError, OutOfDeviceMemory
from tests import tiny
from tests.documents.pages import ROOT


class Nothing:
    """A session that answers at once."""

    get_inputs = get_outputs = None

    def run(self, names, feeds):
        return [feeds["images"]]


def seconds_of(session, *sizes):
    started = time.monotonic()
    for size in sizes:
        session.run([], {"images": np.zeros(size)})
    return time.monotonic() - started


def test_its_costs_stand_in_its_name():
    assert costs_of("simulated:fixed=10:image=0.8:replan=15") == Costs(0.01, 0.0008, 0.015)
    assert costs_of("simulated:memory=48:answers=kept") == Costs(memory=48, is_real=False)
    with pytest.raises(EngineError, match="not speed"):
        costs_of("simulated:speed=9")


def test_time_passes_for_a_batch_for_its_images_and_for_a_changed_size():
    assert seconds_of(SimulatedSession(Nothing(), Costs(fixed=0.01, image=0.001)), 10) >= 0.02
    session = SimulatedSession(Nothing(), Costs(replan=0.02))
    assert seconds_of(session, 1, 2, 1) >= 0.04
    assert seconds_of(SimulatedSession(Nothing(), Costs(replan=30.0)), 4, 4, 4) < 30


def test_it_runs_one_batch_after_the_other_and_leaves_the_interpreter_to_others():
    sessions = [SimulatedSession(Nothing(), Costs(fixed=0.1)) for _ in range(2)]
    threads = [threading.Thread(target=seconds_of, args=(session, 1)) for session in sessions]
    started, turns = time.monotonic(), 0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        turns += 1
        time.sleep(0.001)
    assert time.monotonic() - started >= 0.2
    assert turns > 2


def test_it_answers_as_the_graph_does_and_runs_out_of_memory_where_asked(models):
    engine = start(load_bundle(models / "tiny" / "1"), EngineOptions(("simulated:",), max_batch=8))
    images, _ = tiny.familiar(5, seed=3)
    np.testing.assert_allclose(engine.run(images).scores, tiny.answers(images)[1], atol=1e-5)
    small = start(load_bundle(models / "tiny" / "1"), EngineOptions(("simulated:memory=20",), max_batch=64))
    assert small.batch_sizes == (1, 8)  # the self-test has four images
    np.testing.assert_allclose(small.run(images).scores, tiny.answers(images)[1], atol=1e-5)
    with pytest.raises(OutOfDeviceMemory):
        start(load_bundle(models / "tiny" / "1"), EngineOptions(("simulated:memory=0",), max_batch=8))


def test_nobody_is_told_of_it():
    with pytest.raises(EngineError) as error:
        providers.order(EngineOptions(("simulate",)), has_gpu_build=True)
    assert "simulated" not in str(error.value)
    assert "simulated" not in providers.order(EngineOptions(), has_gpu_build=True)


def test_a_graph_in_16_bits_moves_scores_a_little_and_is_judged_by_the_self_test():
    bundle = load_bundle(max((ROOT / "models" / "cifar10-whitened").iterdir(), key=lambda path: path.name))
    exact = start(bundle, EngineOptions(("simulated:",), max_batch=1))
    half = start(bundle, EngineOptions(("simulated:",), max_batch=1, gpu_fp16=True))
    assert exact.shifts.score < half.shifts.score < shift.tolerated(bundle.manifest.calibration)
