"""What changes while training goes on: the learning rate at a step and the image size at an epoch.

Both are pure functions of the position, so that there is nothing to save for a resumed run.
"""

from __future__ import annotations

import math

from portcullis_training.config import RunConfig

STEP_DIVISOR = 10.0


def learning_rate(config: RunConfig, step: int, num_steps: int) -> float:
    """The learning rate of step 0, 1, …, num_steps − 1."""
    num_warmup = math.ceil(config.warmup * num_steps)
    if step < num_warmup:
        return config.learning_rate * (step + 1) / num_warmup
    if config.schedule == "cosine":
        return config.learning_rate * (1 + math.cos(math.pi * (step - num_warmup) / (num_steps - num_warmup))) / 2
    if config.schedule == "one-cycle":
        height = (num_steps - step) / (num_steps - num_warmup)
        return config.learning_rate * (config.learning_rate_floor + (1 - config.learning_rate_floor) * height)
    num_passed = sum(step >= round(fraction * num_steps) for fraction in config.milestones)
    return config.learning_rate / STEP_DIVISOR**num_passed


def relative_cost(config: RunConfig, epoch: int, height: int, width: int) -> float:
    """What an image of an epoch costs beside one of full size: its share of the pixels."""
    pixels = image_pixels(config, epoch)
    return 1.0 if pixels is None else pixels * pixels / (height * width)


def image_pixels(config: RunConfig, epoch: int) -> int | None:
    """The side of the training images in an epoch where resizing is progressive; None: as they are."""
    for fraction, pixels in config.progressive_resizing or ():
        if epoch < fraction * config.epochs:
            return pixels
    return None
