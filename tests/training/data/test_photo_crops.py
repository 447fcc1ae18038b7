"""Crops from the photo itself: every part of it can be seen, at its own resolution, and one number says which."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from portcullis.bundle.manifest import ImageSpec
from portcullis_training.data.image_set import FileImages
from portcullis_training.data.photo_crops import PhotoCrops, crop, cropped_batches
from portcullis_training.errors import DataError

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
CROPS = PhotoCrops(smallest_share=0.08, num_operations=0)


def as_file(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, quality=95)
    return stream.getvalue()


def test_the_ends_of_a_wide_photo_are_seen():
    pixels = np.zeros((100, 400, 3), np.uint8)
    pixels[:, :60, 0], pixels[:, 340:, 2] = 255, 255  # outside any centre crop
    payload = as_file(pixels)
    colours = [np.asarray(crop(payload, seed, CROPS, (32, 32), "bilinear")).max(axis=(0, 1)) for seed in range(60)]
    seen = np.array(colours) > 200
    assert seen[:, 0].sum() > 10 and seen[:, 2].sum() > 10


def test_a_small_box_has_the_photos_own_resolution():
    """A JPEG is decoded in eighths where that is enough; stripes that are seen close up must not turn grey by it."""
    pixels = np.zeros((1024, 1024, 3), np.uint8)
    pixels[:, np.arange(1024) % 16 < 8] = 255
    payload, tight = as_file(pixels, "JPEG"), PhotoCrops(smallest_share=0.004, num_operations=0)
    close_up = [seed for seed in range(2000) if np.random.default_rng(seed).uniform(0.004, 1.0) < 0.01]
    assert len(close_up) > 3
    assert min(np.asarray(crop(payload, seed, tight, (32, 32), "bilinear")).std() for seed in close_up) > 80


def test_one_number_says_what_happens():
    payload = (EXAMPLES / "cat.jpg").read_bytes()
    changed = PhotoCrops(0.3, 2)
    first, again, other = (np.asarray(crop(payload, seed, changed, (48, 40), "bicubic")) for seed in (5, 5, 6))
    assert first.shape == (48, 40, 3) and np.array_equal(first, again) and not np.array_equal(first, other)


def test_half_of_the_crops_are_mirrored():
    pixels = np.tile(np.linspace(0, 255, 64).astype(np.uint8)[None, :, None], (64, 1, 3))
    cuts = [np.asarray(crop(as_file(pixels), seed, CROPS, (16, 16), "bilinear")).astype(int) for seed in range(200)]
    num_mirrored = sum(cut[:, 0].mean() > cut[:, -1].mean() for cut in cuts)
    assert 70 < num_mirrored < 130


def test_rand_augment_changes_photos_and_leaves_the_generator_of_dropout_alone():
    payload = (EXAMPLES / "coffee.jpg").read_bytes()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    plain, changed = (
        [np.asarray(crop(payload, seed, PhotoCrops(0.3, count), (32, 32), "bicubic")) for seed in range(8)]
        for count in (0, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(not np.array_equal(one, other) for one, other in zip(plain, changed, strict=True)) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_any_number_of_workers_gives_the_same_photos_in_the_same_order(num_workers):
    paths = tuple(sorted(EXAMPLES.glob("*.jpg")))
    images = FileImages(paths, np.arange(len(paths)), ("",) * len(paths), ImageSpec(height=24, width=24))
    seeds = np.arange(len(paths)) * 7
    batches = list(cropped_batches(images, PhotoCrops(0.3, 2), [np.array([3, 0]), np.array([4])], seeds, num_workers))
    assert [labels.tolist() for _, labels in batches] == [[3, 0], [4]]
    expected = crop(paths[3].read_bytes(), int(seeds[3]), PhotoCrops(0.3, 2), (24, 24), "bilinear")
    assert np.array_equal(batches[0][0][0].numpy(), np.asarray(expected))


def test_a_photo_that_is_gone_is_named(tmp_path):
    images = FileImages((tmp_path / "gone.jpg",), np.array([0]), ("",), ImageSpec(height=24, width=24))
    with pytest.raises(DataError, match=r"gone\.jpg: changed or removed"):
        list(cropped_batches(images, CROPS, [np.array([0])], np.array([0]), 0))
