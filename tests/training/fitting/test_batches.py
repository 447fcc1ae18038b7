"""Batches of an epoch: what alternates, what is painted, and that several processes see what one would."""

import numpy as np
import pytest
import torch

from portcullis_training import data
from portcullis_training.config import make_config
from portcullis_training.data.statistics import ChannelStatistics
from portcullis_training.errors import ConfigError
from portcullis_training.fitting.batches import TrainingBatches, shown_order
from portcullis_training.fitting.distributed import Process
from portcullis_training.recipes import RECIPES

MEAN = (0.25, 0.5, 0.75)


def batches(rank: int = 0, count: int = 1, **fields) -> TrainingBatches:
    config = make_config({**RECIPES["digits"].model_dump(), "batch_size": 100, **fields})
    process = Process(rank, count, torch.device("cpu"))
    return TrainingBatches(config, process, data.load("digits", config), ChannelStatistics(MEAN, (0.2, 0.2, 0.2)))


def epoch_images(made: TrainingBatches, epoch: int) -> torch.Tensor:
    """All images of an epoch in the order of the training set."""
    order = np.concatenate(made._order(epoch))
    images = torch.cat([images for images, _ in made.of_epoch(epoch, 0, torch.Generator().manual_seed(epoch))])
    ordered = torch.zeros(len(made._images), *images.shape[1:])
    ordered[torch.from_numpy(order)] = images
    return ordered


def test_alternating_flips_show_both_sides_of_every_image_in_two_epochs():
    made = batches(augmentation="crop-flip", crop_pixels=0, alternating_flips=True)
    first, second, third = (epoch_images(made, epoch) for epoch in range(3))
    in_all = (first.sum((1, 2, 3)) > 0) & (second.sum((1, 2, 3)) > 0) & (third.sum((1, 2, 3)) > 0)
    assert in_all.sum() > 500  # the last batch of an epoch is left out
    assert torch.equal(first[in_all], second[in_all].flip(3)) and torch.equal(first[in_all], third[in_all])
    plain = epoch_images(batches(augmentation="none"), 0)
    in_all &= plain.sum((1, 2, 3)) > 0
    is_mirrored = (first[in_all] != plain[in_all]).flatten(1).any(dim=1)
    assert 0.4 < is_mirrored.float().mean() < 0.6


def test_cutout_paints_the_mean_colour_into_every_image():
    drawn = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    whole, _ = next(batches(augmentation="none", batch_size=500).of_epoch(0, 0, drawn[0]))
    cut, _ = next(batches(augmentation="none", batch_size=500, cutout_pixels=3).of_epoch(0, 0, drawn[1]))
    is_painted = (cut == torch.tensor(MEAN).view(1, 3, 1, 1)).all(dim=1)  # (B, H, W)
    assert torch.equal(is_painted.sum((1, 2)), torch.full((500,), 9))
    untouched = ~is_painted[:, None].expand_as(cut)
    assert torch.equal(cut[untouched], whole[untouched])
    assert len({tuple(place.nonzero()[0].tolist()) for place in is_painted}) == 36  # every place of an 8x8 image


def test_two_processes_see_the_images_that_one_would():
    fields = {"augmentation": "reflect-crop-flip", "alternating_flips": True, "cutout_pixels": 3}
    fields |= {"mixing": "none"}  # with it each takes a part of both halves: test_objective.py
    parts = [
        list(batches(rank, count, **fields).of_epoch(1, 2, torch.Generator().manual_seed(5)))
        for rank, count in ((0, 1), (0, 2), (1, 2))
    ]
    for (alone, labels), (left, left_labels), (right, right_labels) in zip(*parts, strict=True):
        assert torch.equal(alone, torch.cat([left, right]))
        assert torch.equal(labels, torch.cat([left_labels, right_labels]))


def test_a_square_or_a_crop_that_does_not_fit_the_images_is_refused():
    with pytest.raises(ConfigError, match="cutout_pixels: expected fewer than the 8 pixels"):
        batches(cutout_pixels=8)
    with pytest.raises(ConfigError, match="crop_pixels: expected fewer than the 8 pixels"):
        batches(crop_pixels=9)


@pytest.mark.parametrize(("balance", "shares"), [(0.0, (0.8, 0.2)), (0.5, (2 / 3, 1 / 3)), (1.0, (0.5, 0.5))])
def test_small_classes_are_shown_as_often_as_the_balance_says(balance, shares):
    labels = np.repeat([0, 1], [8000, 2000])
    shown = labels[shown_order(labels, balance, np.random.default_rng(0))]
    assert len(shown) == 10_000 and np.bincount(shown) / 10_000 == pytest.approx(shares, abs=0.02)


def test_without_a_balance_every_image_is_shown_once():
    assert sorted(shown_order(np.arange(50) % 3, 0.0, np.random.default_rng(0)).tolist()) == list(range(50))
