"""The learning rate and image size at each position, against the paper's figures and by hand."""

import pytest

from portcullis_training.config import RunConfig
from portcullis_training.fitting.schedule import image_pixels, learning_rate, relative_cost
from portcullis_training.recipes import RECIPES


def test_the_paper_divides_by_ten_after_150_200_and_250_of_300_epochs():
    config = RECIPES["cifar10-densenet-bc-100"]
    num_epoch_steps = 703
    rates = [learning_rate(config, epoch * num_epoch_steps, 300 * num_epoch_steps) for epoch in range(300)]
    expected = [0.1] * 150 + [0.01] * 50 + [0.001] * 50 + [0.0001] * 50
    assert rates == pytest.approx(expected)


def test_one_cycle_rises_to_its_peak_and_falls_to_nearly_nothing():
    config = RunConfig(schedule="one-cycle", warmup=0.25, learning_rate=0.4)
    rates = [learning_rate(config, step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.4 / 25) and rates[24] == pytest.approx(0.4) and rates[25] == pytest.approx(0.4)
    assert rates[:25] == sorted(rates[:25]) and rates[25:] == sorted(rates[25:], reverse=True)
    assert rates[62] == pytest.approx(0.4 * 38 / 75) and rates[99] == pytest.approx(0.4 / 75)


def test_one_cycle_can_end_on_a_floor():
    config = RunConfig(schedule="one-cycle", warmup=0.2, learning_rate=0.5, learning_rate_floor=0.1)
    rates = [learning_rate(config, step, 1000) for step in (0, 199, 200, 600, 1000)]
    assert rates == pytest.approx([0.5 / 200, 0.5, 0.5, 0.05 + 0.45 / 2, 0.05])


def test_a_step_schedule_can_warm_up():
    config = RunConfig(warmup=0.1, learning_rate=1.0)
    assert [learning_rate(config, step, 100) for step in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])


def test_progressive_resizing_ends_at_the_size_of_the_images():
    config = RunConfig(epochs=10, progressive_resizing=((0.3, 16), (0.6, 24)))
    assert [image_pixels(config, epoch) for epoch in range(10)] == [16] * 3 + [24] * 3 + [None] * 4
    assert image_pixels(RunConfig(), 0) is None


def test_smaller_images_are_counted_as_less_work():
    config = RunConfig(epochs=10, progressive_resizing=((0.5, 16),))
    assert relative_cost(config, 0, 32, 32) == 0.25 and relative_cost(config, 9, 32, 32) == 1
