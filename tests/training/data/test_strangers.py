"""Strangers: strange by what was done to them, familiar by what was kept."""

import numpy as np
import pytest

from portcullis_training.data.strangers import KINDS, make_strangers, shuffle_patches

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (12, 16, 20, 3), dtype=np.uint8)
LABELS = np.arange(12) % 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(16, 16), (15, 17), (8, 8)])
def test_every_kind_keeps_the_geometry_and_changes_every_image(kind: str, shape: tuple[int, int]) -> None:
    images = RANDOM.integers(0, 256, (12, *shape, 3), dtype=np.uint8)
    made = make_strangers(kind, images, LABELS, seed=0)
    assert made.shape == images.shape and made.dtype == np.uint8
    is_changed = (made != images).any(axis=(1, 2, 3))
    assert is_changed.all() or (kind == "pixelated" and shape == (8, 8))  # cells of one pixel


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_makes_the_same_strangers_again(kind: str) -> None:
    np.testing.assert_array_equal(*(make_strangers(kind, IMAGES, LABELS, seed=3) for _ in range(2)))


def test_shuffled_patches_keep_every_pixel() -> None:
    shuffled = shuffle_patches(IMAGES[0], 2, np.random.default_rng(0))
    assert sorted(shuffled.reshape(-1, 3).tolist()) == sorted(IMAGES[0].reshape(-1, 3).tolist())


def test_a_compound_has_a_quadrant_of_its_own_image_and_three_of_other_classes() -> None:
    """Images that are their own class's number all over."""
    images = np.broadcast_to(LABELS.astype(np.uint8)[:, None, None, None], (12, 16, 20, 3)).copy()
    made = make_strangers("compound", images, LABELS, seed=0)
    np.testing.assert_array_equal(made[:, :8, :10, 0], images[:, :8, :10, 0])
    for row, column in ((8, 0), (0, 10), (8, 10)):
        assert (made[:, row, column, 0] != LABELS).all()


def test_coloured_noise_has_the_colours_of_its_image() -> None:
    images = np.zeros((4, 64, 64, 3), np.uint8) + np.array([200, 120, 60], np.uint8)
    images[:, :32] //= 2
    made = make_strangers("coloured noise", images, LABELS[:4], seed=0)
    np.testing.assert_allclose(made.mean(axis=(1, 2)), images.mean(axis=(1, 2)), atol=12)


def test_black_images_make_strangers_too() -> None:
    black = np.zeros((4, 8, 8, 3), np.uint8)
    for kind in KINDS:
        assert make_strangers(kind, black, np.zeros(4, np.int64), seed=0).shape == black.shape
