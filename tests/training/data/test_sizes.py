"""Splits as shares: stratified, with floors, and with a seed of their own."""

import math
from pathlib import Path

import numpy as np
import pytest

from portcullis.bundle import gate
from portcullis_training import data
from portcullis_training.config import make_config
from portcullis_training.data import sizes
from portcullis_training.data.image_set import ArrayImages
from portcullis_training.data.sources import Source, from_arrays
from portcullis_training.data.splits import Splits, split
from portcullis_training.errors import DataError
from portcullis_training.recipes import RECIPES

SHARES = {"validation": 0.10, "calibration": 0.15, "test": 0.15}
SPLITS = ("train", "validation", "calibration", "test")


def source(class_sizes: tuple[int, ...], *, groups: np.ndarray | None = None) -> Source:
    """Images that are told apart by their pixels."""
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    pixels = np.zeros((len(labels), 8, 8, 3), np.uint8)
    pixels[:, 0, 0, 0], pixels[:, 0, 0, 1] = np.arange(len(labels)) % 256, np.arange(len(labels)) // 256
    made = from_arrays("made", ArrayImages(pixels, labels), None, tuple(f"c{n}" for n in range(len(class_sizes))))
    everyone = np.arange(len(labels)) if groups is None else groups
    return Source(made.train, None, made.class_names, made.image_spec, groups=everyone)


def drawn(class_sizes: tuple[int, ...], seed: int = 0, wanted=SHARES, **options) -> Splits:
    return split("made", source(class_sizes, **options), seed=seed, wanted=wanted)


def counts(splits: Splits) -> dict[str, list[int]]:
    return {name: np.bincount(getattr(splits, name).labels, minlength=splits.num_classes).tolist() for name in SPLITS}


def test_every_class_gives_each_split_its_share():
    found = counts(drawn((1000, 500, 100)))
    assert found == {
        "train": [600, 300, 60], "validation": [100, 50, 10], "calibration": [150, 75, 15], "test": [150, 75, 15],
    }  # fmt: skip


def test_shares_that_do_not_divide_still_add_up():
    splits = drawn((101, 57, 33, 9))
    assert [len(getattr(splits, name)) for name in ("validation", "calibration", "test")] == [30, 50, 50]
    assert sum(len(getattr(splits, name)) for name in SPLITS) == 200
    for name in ("validation", "calibration", "test"):
        part = getattr(splits, name)
        exact = np.array([101, 57, 33, 9]) * len(part) / 200
        assert np.abs(np.bincount(part.labels, minlength=4) - exact).max() < 1


def test_floors_hold_out_enough_of_a_small_set_and_leave_most_of_a_tiny_one():
    assert sizes.resolve("", SHARES, 300) == {"validation": 30, "calibration": 60, "test": 60}
    assert sizes.resolve("", SHARES, 100_000) == {"validation": 10_000, "calibration": 15_000, "test": 15_000}
    tiny = sizes.resolve("", SHARES, 40)
    assert tiny == {"validation": 6, "calibration": 10, "test": 10} and sum(tiny.values()) < 40


def test_the_floor_of_calibration_is_where_a_threshold_can_keep_five_percent_with_confidence():
    assert gate.rejected_share_bound(1, 59) <= 0.05 < gate.rejected_share_bound(1, 58)
    assert sizes.FLOORS["calibration"] >= 59 and math.isclose(0.95**59, 0.0485, abs_tol=1e-3)


def test_a_tiny_class_keeps_images_for_training():
    for seed in range(20):
        found = counts(drawn((400, 3, 2, 1), seed))
        assert all(count >= 1 for count in found["train"])
        assert all(found[name][3] == 0 for name in SPLITS[1:])


def test_no_image_is_lost_or_in_two_splits_and_no_group_is_divided():
    groups = np.arange(300)
    groups[10:14], groups[200:203], groups[50] = 10, 200, 250  # one of them over two classes
    for seed in range(5):
        splits = drawn((180, 120), seed, groups=groups)
        places = {}
        for name in SPLITS:
            for red, green in getattr(splits, name).images[:, 0, 0, :2].astype(int):
                assert places.setdefault(red + 256 * green, name) == name
        assert len(places) == 300
        for group in np.unique(groups):
            assert len({places[member] for member in np.flatnonzero(groups == group)}) == 1


def test_numbers_are_taken_as_they_are():
    wanted = {"validation": 7, "calibration": 11, "test": 13}
    assert [len(getattr(drawn((60, 40), wanted=wanted), name)) for name in SPLITS] == [69, 7, 11, 13]
    with pytest.raises(DataError, match="10 images cannot give validation 4 \\+ calibration 4 \\+ test 4"):
        drawn((5, 5), wanted={"validation": 4, "calibration": 4, "test": 4})


def test_shares_come_from_the_command_line_as_numbers_do():
    fields = RECIPES["digits"].model_dump()
    config = make_config({**fields, "validation_size": "0.1", "calibration_size": "250", "test_size": "0.25"})
    assert (config.validation_size, config.calibration_size, config.test_size) == (0.1, 250, 0.25)
    splits = data.load("digits", config)
    assert [len(getattr(splits, name)) for name in SPLITS[1:]] == [180, 250, 449]


def test_the_seed_of_the_splits_is_another_than_that_of_the_training(tmp_path: Path):
    digits = RECIPES["digits"].model_copy(update={"split_seed": 3})
    first, again = (data.load("digits", digits.model_copy(update={"seed": seed})) for seed in (0, 1))
    other = data.load("digits", digits.model_copy(update={"split_seed": 4}))
    assert first.fingerprints == again.fingerprints != other.fingerprints
    follows = data.load("digits", RECIPES["digits"].model_copy(update={"seed": 3}))
    assert follows.fingerprints == first.fingerprints  # without one the seed is for both, as it was
