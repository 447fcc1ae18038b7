"""Sets by name whose files people lay out themselves: found where they should be, and missed with words that help."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from portcullis_training.config import RunConfig
from portcullis_training.data import load, load_outside, outside_specs
from portcullis_training.data.laid_out import LAYOUTS, folder_of
from portcullis_training.errors import DataError
from portcullis_training.recipes import RECIPES


@pytest.fixture
def laid_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTCULLIS_DATA", str(tmp_path))
    return tmp_path


def put_pictures(folder: Path, num_pictures: int, seed: int) -> None:
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (num_pictures, 20, 24, 3), dtype=np.uint8)
    for number, picture in enumerate(pixels):
        Image.fromarray(picture).save(folder / f"{number}.JPEG")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_set_that_is_missing_says_where_its_files_go(name: str, laid_out: Path) -> None:
    with pytest.raises(DataError, match=f"{name}: expected its pictures in {laid_out / name}.*there") as refused:
        outside_specs(("noise:uniform", name))
    assert LAYOUTS[name].words in str(refused.value)


def test_names_that_are_not_laid_out_are_left_to_others(laid_out: Path) -> None:
    assert folder_of("cifar10", is_outside=True) is None
    assert set(outside_specs(("cifar10", "shuffled"))) == {"cifar10", "shuffled"}


def test_an_outside_set_cannot_be_trained_on(laid_out: Path) -> None:
    with pytest.raises(DataError, match="lsun has no classes to be trained on"):
        load("lsun", RunConfig())


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (["tiny-imagenet-200/train/n1/images", "tiny-imagenet-200/val/images"], "has no train"),
        (["train/n1/images", "train/n2/images"], "has no val"),
        (["train/n1/images", "val/images"], "still has files in val/images"),
        (["train/n1/images", "val/n1", "test/images"], "still has files in test"),
    ],
)
def test_an_archive_that_is_only_unpacked_says_what_is_left_to_do(
    folders: list[str], message: str, laid_out: Path
) -> None:
    for folder in folders:
        put_pictures(laid_out / "tinyimagenet" / folder, 1, 0)
    with pytest.raises(DataError, match=f"{laid_out / 'tinyimagenet'} {message}; unpack tiny-imagenet-200.zip") as said:
        load("tinyimagenet", RECIPES["tinyimagenet-resnet34"])
    assert "val_annotations.txt" in str(said.value)


def test_tinyimagenet_is_read_as_it_is_unpacked_inside_and_outside(laid_out: Path) -> None:
    for part, seed in (("train", 0), ("val", 10)):
        for label, folder in enumerate(("n01443537", "n01629819")):
            inner = "images" if part == "train" else "."
            put_pictures(laid_out / "tinyimagenet" / part / folder / inner, 8, seed + label)
    (laid_out / "tinyimagenet" / "val" / "val_annotations.txt").write_text("0.JPEG n01443537")
    config = RECIPES["tinyimagenet-resnet34"].model_copy(
        update={"validation_size": 2, "calibration_size": 2, "num_workers": 0}
    )
    splits = load(config.data, config)
    assert splits.class_names == ("n01443537", "n01629819")
    assert (len(splits.train), len(splits.test)) == (12, 16)
    assert (splits.image_spec.height, splits.image_spec.width) == (64, 64)
    assert len(load_outside("tinyimagenet", config, splits)) == 16, "its validation images"
