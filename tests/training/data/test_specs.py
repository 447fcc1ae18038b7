"""Specs that change what another spec reads: grey images, and human names for the classes."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from portcullis_training import data
from portcullis_training.__main__ import main
from portcullis_training.config import RunConfig
from portcullis_training.data.outside import outside_specs, short_name
from portcullis_training.errors import DataError
from portcullis_training.exporting.provenance import portable_config
from portcullis_training.recipes import RECIPES

SMALL = RunConfig(validation_size=10, calibration_size=12, test_size=14)


@pytest.fixture
def coloured(tmp_path: Path) -> Path:
    images = np.random.default_rng(0).integers(0, 256, (60, 9, 7, 3), dtype=np.uint8)
    np.savez(tmp_path / "coloured.npz", images=images, labels=np.arange(60) % 3)
    return tmp_path / "coloured.npz"


def test_grey_images_are_those_of_pillow(coloured: Path) -> None:
    plain = data.load(f"npz:{coloured}", SMALL)
    grey = data.load(f"grey:npz:{coloured}", SMALL)
    for before, after in zip(plain.test.images, grey.test.images, strict=True):
        assert np.array_equal(after, np.asarray(Image.fromarray(before).convert("L").convert("RGB")))
    assert np.array_equal(grey.test.labels, plain.test.labels)


def test_an_outside_set_can_be_grey_and_is_brought_to_the_inside_geometry(coloured: Path) -> None:
    inside = data.load("digits", RECIPES["digits"])
    outside = data.load_outside(f"grey:npz:{coloured}", RECIPES["digits"], inside)
    assert outside.images.shape == (60, 8, 8, 3) and (outside.images == outside.images[..., :1]).all()


def test_grey_needs_a_spec_of_arrays() -> None:
    for spec in ("grey", "grey:", "grey:folder:photos"):
        with pytest.raises(DataError, match="unknown data spec"):
            data.load(spec, SMALL)


def test_a_grey_set_is_named_without_the_directories_of_a_machine() -> None:
    spec = "grey:npz:/srv/sets/strangers.npz"
    assert short_name(spec) == "grey:strangers"
    assert portable_config(SMALL.model_copy(update={"outside": (spec,)})).outside == ("grey:npz:strangers.npz",)


def test_class_names_of_the_config_replace_those_of_the_data(coloured: Path) -> None:
    named = SMALL.model_copy(update={"class_names": ("ant", "bee", "ankle boot")})
    assert data.load(f"npz:{coloured}", SMALL).class_names == ("0", "1", "2")
    assert data.load(f"npz:{coloured}", named).class_names == ("ant", "bee", "ankle boot")
    with pytest.raises(DataError, match="expected 10 class names, one a class, got 3"):
        data.load("digits", named)


def test_two_classes_of_one_name_are_refused_before_anything_is_trained(coloured: Path, tmp_path: Path) -> None:
    twice = SMALL.model_copy(update={"class_names": ("ant", "bee", "ant")})
    with pytest.raises(DataError, match="two classes are called 'ant'"):
        data.load(f"npz:{coloured}", twice)
    with np.load(coloured) as arrays:
        np.savez(tmp_path / "twice.npz", **arrays, class_names=np.array(["bee", "bee", "cat"]))
    with pytest.raises(DataError, match="two classes are called 'bee'"):
        data.load(f"npz:{tmp_path / 'twice.npz'}", SMALL)


def test_class_names_are_given_by_commas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--recipe", "digits", "--runs", str(tmp_path), "--class-names", "zero,one or more"]) == 1
    assert "expected 10 class names, one a class, got 2" in capsys.readouterr().err


def test_outside_sets_that_cannot_be_measured_are_refused_before_anything_is_trained(tmp_path):
    for name in ("one/test", "two/test"):
        (tmp_path / name / "deeper").mkdir(parents=True)
        (tmp_path / name / "deeper" / "photo.JPG").write_bytes(b"looked at later")
    (tmp_path / "empty").mkdir()
    one, two = (f"folder:{tmp_path / name / 'test'}" for name in ("one", "two"))
    assert outside_specs(("shuffled", one)) == {"shuffled": "shuffled", "test": one}
    with pytest.raises(DataError, match="two outside sets are called 'test'"):
        outside_specs((one, two))
    with pytest.raises(DataError, match="nowhere is not there"):
        outside_specs(("constant", f"npz:{tmp_path / 'nowhere'}"))
    with pytest.raises(DataError, match="empty: holds no images; expected files like"):
        outside_specs(("constant", f"folder:{tmp_path / 'empty'}"))
    for wrong, message in (("cifra10", "did you mean 'cifar10'"), ("grey:cifra10", "did you mean 'cifar10'"),
                           ("noise:unifrom", "one of noise:uniform, noise:smooth")):  # fmt: skip
        with pytest.raises(DataError, match=message):
            outside_specs(("constant", wrong))
    assert list(outside_specs(("digits", "grey:svhn", "noise:smooth"))) == ["digits", "grey:svhn", "noise:smooth"]
    arguments = ["--recipe", "digits", "--runs", str(tmp_path / "runs"), "--models", str(tmp_path / "models")]
    for wrong in (f"{one} {two}", "cifra10"):
        assert main(["run", *arguments, "--outside", wrong]) == 1
    assert not (tmp_path / "runs").exists()
