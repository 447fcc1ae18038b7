"""Batches on a device of what several fronts send: who meets whom, what is in flight, and what goes wrong."""

import os

import pytest

from portcullis.answering.device.lane import FAILED, OK, OUT_OF_MEMORY
from portcullis.errors import DeviceLost, EngineError
from tests.hammer import eventually
from tests.service.answering.device.lanes import PATIENCE_SECONDS, Machine, ObedientEngine


def test_images_of_all_fronts_meet_in_one_batch_and_each_gets_its_own_answers():
    engine = ObedientEngine()
    with Machine(engine) as machine:
        first, second = machine.front(), machine.front()
        engine.may_run.clear()
        first.send(0)
        assert engine.is_running.acquire(timeout=PATIENCE_SECONDS)
        second.send(1)  # the second in flight
        assert engine.is_running.acquire(timeout=PATIENCE_SECONDS)
        first.send(5, 6)
        second.send(7, 8, 9)
        engine.may_run.set()
        first_answers, second_answers = first.answers(3), second.answers(4)
    assert sorted(engine.sizes) == [1, 1, 5]
    assert sorted(record[:3] for record in first_answers) == [(0, OK, 1), (5, OK, 5), (6, OK, 5)]
    assert sorted(record[:3] for record in second_answers) == [(1, OK, 1), (7, OK, 5), (8, OK, 5), (9, OK, 5)]
    assert second.slots.read_answers([7, 8, 9])[1].tolist() == [7, 8, 9]
    assert machine.counted("batch_size_count") == 3
    assert machine.counted("engine_busy_seconds_total") > 0


def test_two_batches_are_in_flight_and_no_third_and_the_board_says_how_many_images_run():
    engine = ObedientEngine()
    with Machine(engine, max_batch=4) as machine:
        front = machine.front()
        engine.may_run.clear()
        front.send(*range(10))
        for _ in range(2):
            assert engine.is_running.acquire(timeout=PATIENCE_SECONDS)
        assert not engine.is_running.acquire(timeout=0.2)
        machine.board.say_pending(0, 10)
        assert machine.board.line()[:2] == (2, 8)
        engine.may_run.set()
        front.answers(10)
    assert sorted(engine.sizes) == [2, 4, 4]


def test_the_threads_that_launch_batches_do_not_step_back():
    engine = ObedientEngine()
    with Machine(engine) as machine:
        front = machine.front()
        for slot in range(4):
            front.send(slot)
            front.answers(1)
    assert engine.niceness == {os.getpriority(os.PRIO_PROCESS, 0)}


def test_a_batch_that_does_not_fit_is_run_in_parts_and_later_ones_are_smaller():
    engine = ObedientEngine((1, 8, 32, 64))
    with Machine(engine) as machine:
        front = machine.front()
        engine.memory = 20
        front.send(*range(40))
        statuses = sorted(record[1] for record in front.answers(40))
        assert statuses == [OK] * 8 + [OUT_OF_MEMORY] * 32  # 32 do not fit either, and once more is enough
        front.send(*range(20))
        answers = front.answers(20)
        front.send(*range(20))
        front.answers(20)
    assert {record[1] for record in answers} == {OK}
    assert sorted(record[0] for record in answers) == list(range(20))
    assert front.slots.read_answers(list(range(20)))[1].tolist() == list(range(20))
    assert engine.sizes[:4] == [8, 8, 8, 4]
    assert (max(engine.sizes), sum(engine.sizes)) == (8, 48)
    assert machine.graph.max_batch == 8
    assert machine.counted("out_of_memory_total") == 2
    assert machine.metrics.registry.get_sample_value("portcullis_max_batch") == 8


def test_without_buckets_halves_are_tried():
    engine = ObedientEngine(memory=6)
    with Machine(engine, max_batch=10) as machine:
        front = machine.front()
        front.send(*range(10))
        assert {record[1] for record in front.answers(10)} == {OK}
    assert engine.sizes == [5, 5]
    assert machine.graph.max_batch == 5


def test_rounding_up_to_a_larger_bucket_is_done_only_where_it_serves_more():
    with Machine(ObedientEngine((1, 8, 32, 64))) as machine:
        graph = machine.graph
    assert graph._worthwhile(40) == 40  # nothing is known yet
    for size in (1, 8, 32, 64) * 20:
        graph.time.learn(size, 0.010 + 0.0008 * size)
    assert [graph._worthwhile(waiting) for waiting in (1, 6, 31, 33, 40, 50, 60, 64, 90)] == [
        *(1, 6, 31, 32, 32, 32, 60, 64, 64)
    ]


def test_a_front_that_goes_takes_its_images_with_it_and_nothing_else():
    engine = ObedientEngine()
    with Machine(engine) as machine:
        leaving, staying = machine.front(), machine.front()
        engine.may_run.clear()
        leaving.send(1)
        staying.send(2)
        for _ in range(2):
            engine.is_running.acquire(timeout=1)
        leaving.send(3, 4)
        staying.send(5)
        leaving.stream.close()
        engine.may_run.set()
        assert sorted(record[0] for record in staying.answers(2)) == [2, 5]
        eventually(lambda: [lane.is_gone for lane in machine.gone] == [True])
        staying.send(6)
        assert staying.answers(1)[0][0] == 6


def test_a_front_that_names_a_slot_it_does_not_have_is_sent_away():
    with Machine(ObedientEngine()) as machine:
        front = machine.front()
        front.stream.send((10_000).to_bytes(4, "little"))
        eventually(lambda: machine.gone)
        assert front.stream.receive() is None


def test_a_failed_batch_is_told_and_counted_and_the_next_one_runs():
    engine = ObedientEngine()
    with Machine(engine) as machine:
        front = machine.front()
        engine.error = EngineError("no")
        front.send(1)
        assert front.answers(1)[0][:2] == (1, FAILED)
        assert machine.graph.progress().num_failed == 1
        engine.error = None
        front.send(2)
        assert front.answers(1)[0][:2] == (2, OK)
        assert machine.graph.progress() == (0, None)


def test_a_thread_outlives_whatever_a_batch_does():
    engine = ObedientEngine()
    with Machine(engine) as machine:
        front = machine.front()
        engine.error = AssertionError("not an error of ours")
        for slot in range(4):  # twice for each thread
            front.send(slot)
            assert front.answers(1)[0][:2] == (slot, FAILED)
        engine.error = None
        front.send(9)
        assert front.answers(1)[0][:2] == (9, OK)


def test_a_lost_device_is_told_at_once():
    engine = ObedientEngine()
    with Machine(engine) as machine:
        front = machine.front()
        engine.error = DeviceLost("the device is lost: illegal address")
        front.send(1)
        assert machine.lost.wait(PATIENCE_SECONDS)
    assert machine.causes == ["the device is lost: illegal address"]
    assert machine.counted("broken_engines_total") == 1


@pytest.mark.parametrize("count", [1, 3])
def test_the_end_waits_for_nobody(count):
    with Machine(ObedientEngine()) as machine:
        for _ in range(count):
            machine.front()
