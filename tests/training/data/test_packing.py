"""Packed images are the images, whatever they were packed from."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from portcullis_training import data
from portcullis_training.__main__ import main
from portcullis_training.data.specs import read_arrays
from portcullis_training.recipes import RECIPES

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
DIGITS = RECIPES["digits"]


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_packed_digits_give_the_very_splits_of_digits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "digits", "data/digits.npz"]) == 0
    said = capsys.readouterr().out
    assert "data/digits.npz: 1797 images of 8×8 pixels, 10 classes" in said and "sha256 of the pixels: " in said
    packed, plain = data.load("npz:data/digits.npz", DIGITS), data.load("digits", DIGITS)
    assert packed.fingerprint == plain.fingerprint and packed.class_names == plain.class_names
    assert np.load("data/digits.npz")["images"].shape == (1797, 8, 8), "grey images are kept in one channel"


def test_both_parts_of_idx_files_are_packed() -> None:
    random = np.random.default_rng(0)
    for prefix, number in (("train", 40), ("t10k", 12)):
        _write_idx(f"{prefix}-images-idx3-ubyte", random.integers(0, 256, (number, 9, 7), dtype=np.uint8))
        _write_idx(f"{prefix}-labels-idx1-ubyte", (np.arange(number) % 3).astype(np.uint8))
    assert main(["pack", "idx:.", "train.npz"]) == main(["pack", "idx:.", "test.npz", "--part", "test"]) == 0
    _expect_same("npz:train.npz,test.npz", "idx:.")


@pytest.mark.skipif(not FASHION_MNIST.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_fashion_mnist_is_packed() -> None:
    spec = f"idx:{FASHION_MNIST}"
    assert main(["pack", spec, "train.npz"]) == main(["pack", spec, "test.npz", "--part", "test"]) == 0
    _expect_same("npz:train.npz,test.npz", spec)


def test_a_folder_of_photographs_is_brought_to_one_size() -> None:
    for label, colour in (("red", (250, 0, 0)), ("blue", (0, 0, 250))):
        Path("photos", label).mkdir(parents=True)
        Image.new("RGB", (30, 20), colour).save(f"photos/{label}/one.png")
    assert main(["pack", "folder:photos", "photos.npz", "--image-size", "16"]) == 0
    packed = read_arrays("npz:photos.npz")
    assert packed.train.images.shape == (2, 16, 16, 3) and packed.class_names == ("blue", "red")
    assert packed.train.images[:, 0, 0].tolist() == [[0, 0, 250], [250, 0, 0]]
    assert packed.train.labels.tolist() == [0, 1]


def test_the_interpolation_is_the_one_asked_for() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    np.savez("large.npz", images=pixels, labels=[0, 1, 0, 1])
    assert main(["pack", "npz:large.npz", "small.npz", "--image-size", "8", "--interpolation", "bicubic"]) == 0
    expected = [Image.fromarray(image).resize((8, 8), Image.Resampling.BICUBIC) for image in pixels]
    assert np.array_equal(np.load("small.npz")["images"], np.stack([np.asarray(image) for image in expected]))


def test_what_cannot_be_packed_is_refused_and_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "digits", "digits.npz", "--part", "test"]) == 1
    assert "digits: has no test images of its own" in capsys.readouterr().err
    assert main(["pack", "digits", "digits.zip"]) == 1
    assert "expected a file name that ends in .npz" in capsys.readouterr().err
    assert main(["pack", "digit", "digits.npz"]) == 1
    assert "did you mean 'digits'?" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


def _write_idx(name: str, array: np.ndarray) -> None:
    head = bytes((0, 0, 8, array.ndim)) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    Path(f"{name}.gz").write_bytes(gzip.compress(head + array.tobytes()))


def _expect_same(packed_spec: str, spec: str) -> None:
    packed, plain = read_arrays(packed_spec), read_arrays(spec)
    for one, other in ((packed.train, plain.train), (packed.test, plain.test)):
        assert one is not None and other is not None
        assert np.array_equal(one.images, other.images) and np.array_equal(one.labels, other.labels)
    assert packed.class_names == plain.class_names
