"""Augmentation: every output is a true crop of its own input, and several processes see what one would."""

import numpy as np
import pytest
import torch

from portcullis_training.data import augmentation as augment


def batch(num_images: int = 64, size: int = 16) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(1, 256, (num_images, size, size, 3), dtype=np.uint8))


def crops(num_images: int = 64, seed: int = 0) -> augment.Crops:
    return augment.draw(num_images, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("kind", "mode"), [("crop-flip", "constant"), ("reflect-crop-flip", "reflect"), ("crop", "constant")]
)
def test_each_result_is_a_window_of_its_padded_image_mirrored_or_not(kind, mode):
    images, drawn = batch(), crops()
    results = augment.augment(kind, images, drawn, (16, 16)).numpy()
    num_mirrored = 0
    for image, result in zip(images.numpy(), results, strict=True):
        padded = np.pad(image, ((2, 2), (2, 2), (0, 0)), mode=mode)
        windows = [padded[top : top + 16, left : left + 16] for top in range(5) for left in range(5)]
        straight = any(np.array_equal(window, result) for window in windows)
        mirrored = any(np.array_equal(window[:, ::-1], result) for window in windows)
        assert straight or mirrored
        num_mirrored += not straight
    assert (num_mirrored == 0) if kind == "crop" else (20 < num_mirrored < 44)


def test_crops_reach_every_place():
    images = torch.zeros(4000, 8, 8, 3, dtype=torch.uint8)
    images[:, 4, 4] = 255
    moved = augment.augment("crop", images, crops(4000), (8, 8))[..., 0].nonzero()[:, 1:]
    places = {tuple(place) for place in moved.tolist()}
    assert places == {(row, column) for row in (3, 4, 5) for column in (3, 4, 5)}


def test_crops_reach_as_far_as_is_asked_for():
    images = torch.zeros(4000, 9, 9, 3, dtype=torch.uint8)
    images[:, 4, 4] = 255
    moved = augment.augment("crop", images, crops(4000), (9, 9), crop_pixels=3)[..., 0].nonzero()[:, 1:]
    places = {tuple(place) for place in moved.tolist()}
    assert places == {(row, column) for row in range(1, 8) for column in range(1, 8)}


def test_a_reflected_crop_by_pixels_is_a_window_of_the_padded_image():
    images = batch()
    results = augment.augment("reflect-crop-flip", images, crops(), (16, 16), crop_pixels=5).numpy()
    for image, result in zip(images.numpy(), results, strict=True):
        padded = np.pad(image, ((5, 5), (5, 5), (0, 0)), mode="reflect")
        windows = [padded[top : top + 16, left : left + 16] for top in range(11) for left in range(11)]
        assert any(np.array_equal(window, result) or np.array_equal(window[:, ::-1], result) for window in windows)


def test_cutout_paints_one_square_where_it_was_drawn():
    images = torch.rand(3, 3, 6, 8)
    squares = torch.tensor([[0.0, 0.5, 0.999], [0.0, 0.5, 0.999]])  # of the 4 and 6 places that a square of 3 has
    painted = augment.cut_out(images, squares, 3, (0.1, 0.2, 0.3))
    for index, (top, left) in enumerate([(0, 0), (2, 3), (3, 5)]):
        expected = images[index].clone()
        expected[:, top : top + 3, left : left + 3] = torch.tensor([0.1, 0.2, 0.3])[:, None, None]
        assert torch.equal(painted[index], expected)
    assert painted.is_contiguous(memory_format=torch.channels_last)


def test_none_changes_nothing():
    assert torch.equal(augment.augment("none", batch(), crops(), (16, 16)), batch())


def test_resized_crops_have_the_size_asked_for_and_stay_within_the_range():
    results = augment.augment("resized-crop-flip", batch(size=20), crops(), (16, 12))
    assert results.shape == (64, 16, 12, 3)
    assert float(results.min()) >= 0.99 and float(results.max()) <= 255.01
    constant = torch.full((64, 20, 20, 3), 77, dtype=torch.uint8)
    assert torch.allclose(
        augment.augment("resized-crop-flip", constant, crops(), (16, 12)), torch.tensor(77.0), atol=1e-3
    )


def test_two_processes_see_the_images_that_one_would():
    images, drawn = batch(), crops()
    whole = augment.augment("crop-flip", images, drawn, (16, 16))
    halves = [
        augment.augment("crop-flip", images[a:b], drawn.part(torch.arange(a, b)), (16, 16))
        for a, b in ((0, 32), (32, 64))
    ]
    assert torch.equal(whole, torch.cat(halves))


def test_the_same_seed_draws_the_same():
    assert torch.equal(crops(seed=3).tops, crops(seed=3).tops)
    assert not torch.equal(crops(seed=3).tops, crops(seed=4).tops)


def test_resizing_keeps_the_mean_and_the_memory_format():
    images = batch(8, 32).permute(0, 3, 1, 2).float()
    smaller = augment.resize(images, 16)
    assert smaller.shape == (8, 3, 16, 16) and smaller.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(smaller.mean(), images.mean(), rtol=0.02)
    assert augment.resize(images, 32) is images
