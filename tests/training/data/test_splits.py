"""Data specs: what they read, how they split, and what they refuse."""

import gzip
import struct
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from portcullis_training import data
from portcullis_training.config import RunConfig
from portcullis_training.data.array_files import parse_idx
from portcullis_training.errors import DataError
from portcullis_training.recipes import RECIPES

DIGITS = RECIPES["digits"]
SPLITS = ("train", "validation", "calibration", "test")


def config(**fields) -> RunConfig:
    return RunConfig(validation_size=10, calibration_size=12, test_size=14, **fields)


def write_npz(path: Path, num_images: int = 60, size: int = 9, **arrays) -> str:
    random = np.random.default_rng(0)
    content = {
        "images": random.integers(0, 256, (num_images, size, size, 3), dtype=np.uint8),
        "labels": np.arange(num_images) % 3,
        "class_names": np.array(["ant", "bee", "cat"]),
    }
    np.savez(path, **{**content, **arrays})
    return f"npz:{path}"


def test_the_four_splits_are_disjoint_and_lose_no_image():
    splits = data.load("digits", DIGITS)
    parts = [getattr(splits, name) for name in SPLITS]
    assert [len(part) for part in parts] == [1797 - 200 - 250 - 360, 200, 250, 360]
    digests = [set(part.digests()) for part in parts]
    everything = data.load("digits", DIGITS.model_copy(update={"seed": 5}))
    # A few digits of the set are equal to the pixel, so the union is compared, and the sizes above.
    assert set.union(*digests) == set.union(*(set(getattr(everything, name).digests()) for name in SPLITS))


def test_no_image_is_in_two_splits(tmp_path):
    spec = write_npz(
        tmp_path / "images.npz", images=np.arange(60, dtype=np.uint8)[:, None, None].repeat(9, 1).repeat(9, 2)
    )
    splits = data.load(spec, config())
    seen = [set(getattr(splits, name).images[:, 0, 0, 0].tolist()) for name in SPLITS]
    assert sum(len(part) for part in seen) == 60 and set.union(*seen) == set(range(60))


def test_the_same_seed_draws_the_same_splits_and_another_draws_others():
    first, again = data.load("digits", DIGITS), data.load("digits", DIGITS)
    other = data.load("digits", DIGITS.model_copy(update={"seed": 1}))
    assert first.fingerprints == again.fingerprints and first.fingerprint == again.fingerprint
    assert all(first.fingerprints[name] != other.fingerprints[name] for name in SPLITS)


@pytest.mark.parametrize("change", ["pixel", "label"])
def test_a_fingerprint_notices_one_changed_pixel_or_label(tmp_path, change):
    images = np.zeros((60, 9, 9, 3), dtype=np.uint8)
    labels = np.arange(60) % 3
    before = data.load(write_npz(tmp_path / "a.npz", images=images, labels=labels), config()).fingerprint
    if change == "pixel":
        images[7, 3, 3, 1] = 1
    else:
        labels[7] = (labels[7] + 1) % 3
    assert data.load(write_npz(tmp_path / "a.npz", images=images, labels=labels), config()).fingerprint != before


def test_a_test_file_is_the_test_split_and_no_other(tmp_path):
    train, test = write_npz(tmp_path / "train.npz"), write_npz(tmp_path / "test.npz", num_images=20)
    splits = data.load(f"{train},{test.removeprefix('npz:')}", config())
    assert [len(getattr(splits, name)) for name in SPLITS] == [60 - 22, 10, 12, 20]
    assert splits.class_names == ("ant", "bee", "cat")
    with np.load(tmp_path / "test.npz") as arrays:
        assert np.array_equal(splits.test.images, arrays["images"])


def test_grey_images_become_rgb_by_repetition():
    splits = data.load("digits", DIGITS)
    assert splits.train.images.shape[1:] == (8, 8, 3) and (splits.image_spec.height, splits.image_spec.width) == (8, 8)
    assert (splits.train.images[..., 0] == splits.train.images[..., 2]).all()


def test_statistics_are_those_of_the_training_images():
    splits = data.load("digits", DIGITS)
    statistics = data.channel_statistics(splits.train)
    pixels = splits.train.images.reshape(-1, 3) / 255
    assert statistics.mean == pytest.approx(pixels.mean(axis=0)) and statistics.std == pytest.approx(pixels.std(axis=0))


def test_floating_point_images_are_taken_from_zero_to_one(tmp_path):
    spec = write_npz(tmp_path / "a.npz", images=np.linspace(0, 1, 60 * 81).reshape(60, 9, 9))
    assert data.load(spec, config()).train.images.dtype == np.uint8


BAD_ARRAYS = {
    "NaN pixels": (
        {"images": np.full((60, 9, 9), np.nan)},
        "60 images hold NaN or infinite pixels, the first at index 0",
    ),
    "beyond one": ({"images": np.full((60, 9, 9), 255.0)}, r"floating-point images in \[0, 1\]"),
    "integers": ({"images": np.zeros((60, 9, 9), dtype=np.int32)}, "expected uint8 or floating-point.*got int32"),
    "two channels": (
        {"images": np.zeros((60, 9, 9, 2), dtype=np.uint8)},
        r"expected images of shape.*got \(60, 9, 9, 2\)",
    ),
    "no images": ({"images": np.zeros((0, 9, 9), dtype=np.uint8), "labels": np.zeros(0, dtype=int)}, "holds no images"),
    "label too high": ({"labels": np.arange(60) % 4}, "labels from 0 to 2, got 3 at index 3"),
    "negative label": ({"labels": np.arange(60) % 3 - 1}, "got -1 at index 0"),
    "fractional labels": ({"labels": np.arange(60) / 60}, "whole numbers"),
    "too few labels": ({"labels": np.arange(59) % 3}, "expected 60 labels"),
    "one class": ({"labels": np.zeros(60, dtype=int)}, "at least two classes, got only 'ant'"),
    "an empty class": ({"labels": np.arange(60) % 2}, "no training image of class 'cat'"),
}


@pytest.mark.parametrize(("arrays", "message"), BAD_ARRAYS.values(), ids=BAD_ARRAYS.keys())
def test_bad_arrays_are_refused_with_the_cause(tmp_path, arrays, message):
    with pytest.raises(DataError, match=message):
        data.load(write_npz(tmp_path / "bad.npz", **arrays), config())


def test_files_that_are_no_npz_are_refused(tmp_path):
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04" + bytes(100))
    with (tmp_path / "array.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    np.savez(tmp_path / "other.npz", pixels=np.zeros(3))
    np.savez(tmp_path / "object.npz", images=np.array([{}], dtype=object), labels=np.zeros(1, dtype=int))
    expected = {"other": "got pixels", "none": "no such file"}
    for name in ("text", "cut", "object", "array", "other", "none"):
        message = expected.get(name, "not a readable npz file")
        with pytest.raises(DataError, match=message):
            data.load(f"npz:{tmp_path / name}.npz", config())


def test_splits_that_leave_nothing_to_train_on_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"60 images cannot give validation 50 .* ask for fewer"):
        data.load(write_npz(tmp_path / "a.npz"), RunConfig(validation_size=50, calibration_size=5, test_size=5))


def test_an_unknown_spec_is_refused_with_the_nearest():
    with pytest.raises(DataError, match=r"unknown data spec 'digit'.*did you mean 'digits'"):
        data.load("digit", config())
    with pytest.raises(DataError, match="unknown data spec 'folder'"):
        data.load("folder", config())


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as stream:
        stream.write(header + array.astype(np.uint8).tobytes())


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_are_read_with_their_test_set(tmp_path, suffix):
    images = np.random.default_rng(0).integers(0, 256, (60, 28, 28))
    for prefix, count in (("train", 60), ("t10k", 15)):
        write_idx(tmp_path / f"{prefix}-images-idx3-ubyte{suffix}", images[:count])
        write_idx(tmp_path / f"{prefix}-labels-idx1-ubyte{suffix}", np.arange(count) % 5)
    splits = data.load(f"idx:{tmp_path}", config())
    assert [len(getattr(splits, name)) for name in SPLITS] == [38, 10, 12, 15]
    assert np.array_equal(splits.test.images[..., 1], images[:15]) and splits.num_classes == 5
    assert splits.image_spec.height == 28


def test_broken_idx_files_are_refused():
    with pytest.raises(DataError, match="cut short"):
        parse_idx("x", struct.pack(">HBBI", 0, 8, 1, 10) + bytes(9))
    with pytest.raises(DataError, match="expected an IDX file of unsigned bytes"):
        parse_idx("x", b"\x89PNG")
    with pytest.raises(DataError, match="dimensions"):
        parse_idx("x", b"\0\0\x08\x09")


@pytest.mark.slow
def test_fashion_mnist_as_debian_ships_it():
    path = Path("/usr/share/datasets/fashion-mnist")
    if not path.is_dir():
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    splits = data.load(f"idx:{path}", RunConfig())
    assert [len(getattr(splits, name)) for name in SPLITS] == [50000, 5000, 5000, 10000]
    assert data.channel_statistics(splits.train).mean[0] == pytest.approx(0.286, abs=0.002)  # as published


def test_named_sets_say_what_to_do_without_a_network(tmp_path, monkeypatch):
    def no_network(*arguments, **options):
        raise urllib.error.URLError("no route")

    monkeypatch.setenv("PORTCULLIS_DATA", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    for name in ("cifar10", "svhn", "mnist"):
        with pytest.raises(DataError, match=f"{name}: .*could not be downloaded.*PORTCULLIS_DATA.*npz:"):
            data.load(name, config())


@pytest.mark.parametrize("spec", ["noise:uniform", "noise:smooth", "constant", "shuffled"])
def test_outside_sets_that_need_no_data_are_seeded_and_fit_the_inside_geometry(spec):
    splits = data.load("digits", DIGITS)
    images = data.load_outside(spec, DIGITS, splits)
    assert images.images.shape[1:] == (8, 8, 3) and images.images.dtype == np.uint8
    assert np.array_equal(images.images, data.load_outside(spec, DIGITS, splits).images)
    assert images.images.std() > 10


def test_constant_images_are_constant_and_shuffled_ones_keep_their_pixels():
    splits = data.load("digits", DIGITS)
    constant = data.load_outside("constant", DIGITS, splits).images
    assert (constant == constant[:, :1, :1]).all()
    shuffled = data.load_outside("shuffled", DIGITS, splits).images
    assert np.array_equal(np.sort(shuffled.reshape(360, -1)), np.sort(splits.test.images.reshape(360, -1)))
    assert not np.array_equal(shuffled, splits.test.images)


def test_outside_sets_of_another_size_are_resized_like_a_request_would_be(tmp_path):
    from portcullis.bundle.preprocess import prepare

    splits = data.load("digits", DIGITS)
    outside = data.load_outside(write_npz(tmp_path / "strangers.npz", size=20), DIGITS, splits)
    with np.load(tmp_path / "strangers.npz") as arrays:
        assert np.array_equal(outside.images[5], prepare(arrays["images"][5], splits.image_spec))


def test_an_unknown_noise_is_refused():
    with pytest.raises(DataError, match="unknown outside set 'noise:pink'"):
        data.load_outside("noise:pink", DIGITS, data.load("digits", DIGITS))


def test_arrays_can_be_trained_on_in_another_size():
    splits = data.load("digits", DIGITS.model_copy(update={"image_size": 16}))
    assert splits.train.images.shape[1:] == (16, 16, 3) and splits.image_spec.height == 16
