"""How many images go through the network after training: what a budget of time has to leave room for."""

from __future__ import annotations

from portcullis.bundle.manifest import FITTED
from portcullis_training.config import RunConfig
from portcullis_training.data.outside import MAKERS, num_made
from portcullis_training.data.splits import Splits
from portcullis_training.data.strangers import KINDS, num_sources

NUM_TRAINING_IMAGES = 8000
"""Drawn for class means, covariances and the bank of a score; more would change little."""


def num_read_later(splits: Splits, config: RunConfig) -> int:
    """Images that set temperature, score and gate and give the figures; outside sets with files of their own apart."""
    spec = splits.image_spec
    held_out = sum(map(len, splits.held_out))
    of_training = 0 if config.score == "own" else min(len(splits.train), NUM_TRAINING_IMAGES)
    strangers = len(KINDS) * num_sources(len(splits.validation), 3 * spec.height * spec.width)
    made = sum(num_made(spec) for outside in config.outside if outside in MAKERS)
    return held_out + of_training + (strangers if config.score == FITTED else 0) + made
