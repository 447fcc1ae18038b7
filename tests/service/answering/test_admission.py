"""Who may join a queue, told by a simulation of the batcher around it, on a clock of its own."""

import math
import random

import pytest

from portcullis.answering.admission import LEAST_WAITING, MAX_EXCESS, Admission, Limits, Line, PoolLine
from tests.service.answering.simulation import Phase, Simulation

CPU = Limits(max_batch=8, queue_capacity=128, overload_wait_seconds=0.004)
DEVICE = Limits(max_batch=64, queue_capacity=128, overload_wait_seconds=0.004)


def linear(fixed, per_item):
    return lambda num_items: fixed + per_item * num_items


on_cpu = linear(0.0001, 0.001)
on_slow_cpu = linear(0.0003, 0.015)  # a photograph through a network of some size
on_slowest_cpu = linear(0.001, 0.2)
on_device = linear(0.010, 0.0008)


def capacity(limits, seconds_of):
    return limits.max_batch / seconds_of(limits.max_batch)


def queues(number, limits, seconds_of):
    """Seconds in which so many full queues are served."""
    return number * limits.queue_capacity / capacity(limits, seconds_of)


def in_buckets(*sizes):
    """A device that fills a batch up to the next size that it was built for."""
    return lambda num_items: on_device(next(size for size in sizes if size >= num_items))


def unsteady(seed=1):
    """A device whose every batch takes up to half as long again."""
    dice = random.Random(seed)
    return lambda num_items: on_device(num_items) * dice.uniform(1, 1.5)


def held_up(seconds_of, seed=1):
    """An engine that others on its core keep from running, now for a moment and now for the time of a whole batch."""
    dice = random.Random(seed)
    return lambda num_items: seconds_of(num_items) + dice.expovariate(1 / 0.006)


def nearly(seconds_of, seed=2):
    """The engine's own clock; a cold cache costs it a little."""
    dice = random.Random(seed)
    return lambda num_items: seconds_of(num_items) * dice.uniform(1, 1.2)


def test_a_full_queue_takes_nobody():
    simulation, phase = Simulation(CPU, on_cpu), Phase(1)
    for _ in range(1 + CPU.queue_capacity):  # the first runs at once
        simulation.offer(phase)
    assert phase.num_refused == 0
    simulation.offer(phase)
    assert phase.num_refused == 1


@pytest.mark.parametrize("times", [1.3, 2, 4, 10])
def test_in_a_flood_a_cpu_admits_what_is_answered_soon_and_stays_busy(times):
    simulation = Simulation(CPU, on_cpu)
    simulation.run(times * capacity(CPU, on_cpu), 2)  # notices the flood, works off what came before
    phase = simulation.run(times * capacity(CPU, on_cpu), 5)
    assert phase.served_per_second >= 0.95 * capacity(CPU, on_cpu)
    # those ahead are done within the limit, but for one batch that is worth running; then comes one's own
    assert phase.wait_at(0.999) <= 2 * on_cpu(CPU.max_batch)
    assert max(phase.sizes) < CPU.max_batch


@pytest.mark.parametrize("seconds_of", [on_slow_cpu, on_slowest_cpu], ids=["slow", "slowest"])
@pytest.mark.parametrize("times", [1.3, 2, 4])
def test_a_flood_is_one_on_a_slow_engine_too_and_so_is_its_end(seconds_of, times):
    """Few are too many for it: counted by the second they look like nothing, and everybody waits for a full queue."""
    simulation, most = Simulation(CPU, seconds_of), capacity(CPU, seconds_of)
    simulation.run(times * most, queues(5, CPU, seconds_of))
    flood = simulation.run(times * most, queues(20, CPU, seconds_of))
    assert flood.served_per_second >= 0.9 * most
    assert flood.wait_at(0.99) <= 2 * seconds_of(LEAST_WAITING) + 1e-9
    first = simulation.run(0.6 * most, queues(MAX_EXCESS, CPU, seconds_of))
    after = simulation.run(0.6 * most, queues(20, CPU, seconds_of))
    assert first.num_refused <= 0.1 * first.num_offered
    assert after.num_refused == 0


@pytest.mark.parametrize("times", [1.3, 4])
@pytest.mark.parametrize("before", [0, 100], ids=["cold", "full"])
def test_a_cpu_that_is_held_up_makes_nobody_wait_for_whole_batches(times, before):
    """To wait for the processor is no fixed part of a batch: larger ones would only make everybody wait longer."""
    simulation = Simulation(CPU, held_up(on_cpu), nearly(on_cpu))
    if before:
        simulation.run_in_turn(before, 5)  # in full batches, which say nothing of smaller ones
    simulation.run(times * capacity(CPU, on_cpu), 2)
    phase = simulation.run(times * capacity(CPU, on_cpu), 20)
    assert sum(phase.sizes) / len(phase.sizes) < CPU.max_batch / 2
    assert sum(size == CPU.max_batch for size in phase.sizes) < 0.01 * len(phase.sizes)


@pytest.mark.parametrize(
    "seconds_of",
    [on_device, linear(0.002, 0.0002), linear(0.03, 0.0001), linear(0.02, 0), in_buckets(1, 8, 32, 64), unsteady()],
    ids=["given", "fast", "nearly fixed", "all fixed", "in buckets", "unsteady"],
)
@pytest.mark.parametrize("before", [0.0, 0.05, 0.6], ids=["cold", "idle", "busy"])
@pytest.mark.parametrize("times", [1.3, 4])
def test_a_flood_does_not_make_a_device_slower_than_it_is(seconds_of, before, times):
    """Small batches take longer an item: to admit fewer because of that would keep them small for ever."""
    full = [seconds_of(DEVICE.max_batch) for _ in range(1000)]
    most = DEVICE.max_batch / (sum(full) / len(full))
    simulation = Simulation(DEVICE, seconds_of)
    if before:
        simulation.run(before * most, 5)
    flood = simulation.run(times * most, 10)
    assert flood.served_per_second >= 0.95 * most
    first = simulation.run(0.6 * most, 1)
    after = simulation.run(0.6 * most, 10)
    assert first.num_served >= first.num_offered  # with what waited when the flood ended
    assert after.num_refused == 0
    assert after.num_served >= 0.98 * after.num_offered


def test_a_flood_on_a_device_is_answered_within_two_batches():
    simulation = Simulation(DEVICE, on_device)
    simulation.run(1.3 * capacity(DEVICE, on_device), 2)
    flood = simulation.run(1.3 * capacity(DEVICE, on_device), 5)
    assert max(flood.waits) <= 2 * on_device(DEVICE.max_batch) + 1e-9


def flooded(limits=CPU, seconds_of=on_cpu):
    """At a moment in the middle of a flood, with nothing in line."""
    simulation = Simulation(limits, seconds_of)
    simulation.run(4 * capacity(limits, seconds_of), 5)
    return simulation


def test_the_batch_that_runs_counts_in_the_wait():
    """Five wait, which takes 5 ms: soon enough while the engine is free, or nearly, but not behind a batch of eight."""
    simulation = flooded(Limits(max_batch=8, queue_capacity=128, overload_wait_seconds=0.006))
    now, admission = simulation.now, simulation.admission
    assert not admission.is_hopeless(Line(5), now)
    assert admission.is_hopeless(Line(5, num_running=8, running_since=now), now)
    assert not admission.is_hopeless(Line(5, num_running=8, running_since=now - on_cpu(8) + 0.0005), now)
    assert not admission.is_hopeless(Line(0, num_running=8, running_since=now), now)  # or the engine would stand still


@pytest.mark.parametrize(
    ("limits", "seconds_of"),
    [(CPU, on_cpu), (CPU, on_slowest_cpu), (DEVICE, on_device)],
    ids=["cpu", "slowest cpu", "device"],
)
def test_many_clients_that_wait_for_their_answers_are_no_flood(limits, seconds_of):
    """A hundred of them keep the queue far longer than a flood may, for as long as they like."""
    phase = Simulation(limits, seconds_of).run_in_turn(100, queues(100, limits, seconds_of))
    assert phase.num_refused == 0
    assert phase.served_per_second >= 0.8 * capacity(limits, seconds_of)


@pytest.mark.parametrize(
    ("limits", "seconds_of"), [(CPU, held_up(on_cpu)), (DEVICE, unsteady())], ids=["held up", "unsteady"]
)
def test_nor_are_they_where_no_two_batches_take_as_long(limits, seconds_of):
    assert Simulation(limits, seconds_of).run_in_turn(100, 30).num_refused == 0


def test_a_flood_that_has_ended_is_forgotten_however_long_it_was():
    simulation = Simulation(CPU, on_cpu)
    simulation.run(4 * capacity(CPU, on_cpu), 30)
    simulation.rest(queues(MAX_EXCESS, CPU, on_cpu))
    assert simulation.run_in_turn(100, 5).num_refused == 0


def test_after_a_flood_a_short_queue_is_open_at_once():
    simulation = flooded()
    simulation.rest(0.010)
    assert simulation.admission.offer(simulation.line, simulation.now)


def test_what_would_be_refused_is_known_before_it_is_offered():
    quiet = Simulation(CPU, on_cpu)
    assert not quiet.admission.is_hopeless(Line(100), quiet.now)
    simulation = flooded()
    longest = math.floor(CPU.overload_wait_seconds / on_cpu(1))
    assert not simulation.admission.is_hopeless(Line(longest), simulation.now)
    assert simulation.admission.is_hopeless(Line(longest + 2), simulation.now)
    simulation.rest(queues(MAX_EXCESS, CPU, on_cpu))
    assert not simulation.admission.is_hopeless(simulation.line, simulation.now)
    assert not simulation.admission.is_hopeless(Line(longest + 2), simulation.now)


def test_where_several_share_an_engine_each_forgets_as_much_as_its_part_of_it_could_serve():
    """A thousand a second, half of them here: of an excess of 128, more than 64 are left after 0.1 s, not after 0.2."""
    admission = Admission(CPU, 0.0, num_sharing=2)
    admission.served(8, 8, 0.008)
    for _ in range(200):
        admission.offer(Line(8), 0.0)
    flooded = []
    for now in (0.0, 0.1, 0.2):
        admission.is_hopeless(Line(0), now)
        flooded.append(admission.is_flooded)
    assert flooded == [True, True, False]


def test_what_is_served_is_taken_off_the_excess_once():
    """Four of fourteen in the time that four take, and not four more when those are served: a flood is above ten."""
    admission = Admission(Limits(max_batch=4, queue_capacity=10, overload_wait_seconds=1), 0.0)
    admission.served(4, 4, 0.004)
    for _ in range(14):
        admission.offer(Line(8), 0.0)
    assert admission.is_flooded
    admission.is_hopeless(Line(0), 0.004)
    admission.served(4, 4, 0.004)
    assert not admission.is_flooded
    admission.offer(Line(8), 0.004)
    assert admission.is_flooded


def pool(num_ahead, seconds_each=0.020, num_threads=1):
    return PoolLine(num_ahead, num_threads, seconds_each)


def test_the_wait_for_the_pool_is_shared_out_over_its_threads():
    waits = [pool(ahead, num_threads=2).wait_seconds for ahead in (0, 1, 2, 3, 5)]
    assert waits == pytest.approx([0, 0, 0.010, 0.020, 0.040])


def test_in_a_flood_a_large_item_waits_for_no_long_pool_while_a_small_one_passes_by():
    simulation = flooded()
    now, admission = simulation.now, simulation.admission
    assert admission.is_hopeless(Line(2), now, pool(2))
    assert not admission.is_hopeless(Line(2), now)
    assert not admission.is_hopeless(Line(2), now, pool(1))  # or the thread would soon have nothing to do
    assert not admission.is_hopeless(Line(2), now, pool(40, seconds_each=0.00005))


def test_a_pool_that_is_quick_enough_for_the_next_batch_keeps_nobody_from_it():
    """On a device everything is decoded by the pool, while a batch runs for 60 ms."""
    simulation = flooded(DEVICE, on_device)
    line = Line(30, num_running=64, running_since=simulation.now)
    assert not simulation.admission.is_hopeless(line, simulation.now, pool(30, 0.004, num_threads=4))
    assert simulation.admission.is_hopeless(line, simulation.now, pool(60, 0.008, num_threads=4))


def test_what_cannot_be_answered_by_its_deadline_is_refused_at_once_flood_or_not():
    simulation = Simulation(CPU, on_cpu)
    simulation.run(0.5 * capacity(CPU, on_cpu), 1)
    now, offer = simulation.now, simulation.admission.offer
    assert offer(Line(0), now, pool(40), deadline=now + 1)
    assert not offer(Line(0), now, pool(60), deadline=now + 1)
    assert offer(Line(100), now, deadline=now + 0.2)
    assert not offer(Line(100), now, deadline=now + 0.05)
