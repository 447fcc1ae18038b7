import random

import pytest

from portcullis.answering.batch_time import BatchTime


def learned(batches, fixed=0.010, per_item=0.0008):
    time = BatchTime()
    for num_items in batches:
        time.learn(num_items, fixed + per_item * num_items)
    return time


def test_nothing_is_known_before_the_first_batch_and_all_of_that_is_fixed():
    time = BatchTime()
    assert (time.seconds(0), time.seconds(64)) == (0.0, 0.0)
    time.learn(4, 0.02)
    assert (time.seconds(0), time.seconds(4), time.seconds(64)) == pytest.approx((0.0, 0.02, 0.02))


def test_both_parts_are_found_from_batches_of_several_sizes():
    dice = random.Random(0)
    time = learned([dice.randint(1, 64) for _ in range(200)])
    assert (time.fixed, time.per_item) == pytest.approx((0.010, 0.0008), rel=0.02)


def test_batches_of_one_size_say_nothing_of_the_parts_and_so_change_neither():
    time = learned([1, 30, 64] * 20)
    parts = time.fixed, time.per_item
    for _ in range(1000):
        time.learn(64, 0.010 + 0.0008 * 64)
    assert (time.fixed, time.per_item) == pytest.approx(parts, rel=0.02)


def test_a_machine_that_becomes_slower_is_slower_in_both_parts():
    """As batches of one size tell it: a level that rose is not all fixed, which would call for full batches."""
    time = learned([1, 4, 8] * 20 + [8] * 200, fixed=0.0002, per_item=0.001)
    for _ in range(200):
        time.learn(8, 2 * 0.0082)
    assert time.fixed / time.per_item == pytest.approx(0.2, rel=0.1)
    assert time.seconds(8) == pytest.approx(2 * 0.0082, rel=0.01)


def test_the_parts_are_told_by_the_engines_clock_and_the_seconds_by_the_one_on_the_wall():
    dice, time = random.Random(0), BatchTime()
    for _ in range(200):
        num_items = dice.randint(1, 8)
        work = 0.0002 + 0.001 * num_items
        time.learn(num_items, work + dice.choice([0.001, 0.003]), work)
    assert (time.fixed, time.per_item) == pytest.approx((0.0002, 0.001), rel=0.02)
    assert time.seconds(5) == pytest.approx(0.0052 + 0.002, rel=0.15)


def test_a_device_that_becomes_slower_is_noticed_and_one_long_batch_is_not_believed():
    time = learned([1, 30, 64] * 20)
    before = time.seconds(64)
    time.learn(64, 60.0)
    assert time.seconds(64) < 1.5 * before
    for num_items in [1, 30, 64] * 30:
        time.learn(num_items, 3 * (0.010 + 0.0008 * num_items))
    assert time.seconds(64) == pytest.approx(3 * before, rel=0.05)


@pytest.mark.parametrize("batches", [[(1, 2.0), (8, 1.0)], [(1, 1.0), (8, 20.0)]], ids=["falling", "steep"])
def test_neither_part_is_ever_below_nothing(batches):
    time = BatchTime()
    for num_items, seconds in batches * 5:
        time.learn(num_items, seconds)
        assert time.fixed >= 0
        assert time.per_item >= 0


@pytest.mark.parametrize(
    ("fixed", "per_item", "max_batch", "expected"),
    [
        (0.010, 0.0008, 64, 64),  # the fixed part is worth a dozen items: full ones
        (0.00025, 0.001, 8, 3),  # 92 % of 8 / 8.25 ms is 0.8921: 2 / 2.25 ms is just below, 3 / 3.25 ms above
        (0.0016, 0.0008, 64, 17),  # 92 % of 64 / 66 is 0.8921 as well: 16 / 18 is just below, 17 / 19 above
        (0.0, 0.001, 8, 1),
        (0.020, 0.0, 64, 64),
    ],
)
def test_the_least_batch_that_is_worth_running(fixed, per_item, max_batch, expected):
    time = BatchTime()
    time.fixed, time.per_item = fixed, per_item
    assert time.least_worthwhile(max_batch) == expected
