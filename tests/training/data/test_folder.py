"""Folders of images: any size, decoded by the service's own function, broken files named and left out."""

import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from portcullis.bundle.preprocess import decode
from portcullis_training import data
from portcullis_training.config import RunConfig
from portcullis_training.data import file_facts
from portcullis_training.errors import DataError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def config(**fields) -> RunConfig:
    options = {"validation_size": 4, "calibration_size": 4, "test_size": 4, "image_size": 16, "num_workers": 0}
    return RunConfig(**{**options, **fields})


def write_images(root: Path, classes: tuple[str, ...] = ("cat", "dog"), per_class: int = 10, seed: int = 0) -> Path:
    random = np.random.default_rng(seed)
    for name in classes:
        (root / name).mkdir(parents=True)
        for index in range(per_class):
            shape = (random.integers(10, 60), random.integers(10, 60), 3)
            pixels = random.integers(0, 256, shape, dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{index:03}{'.png' if index % 2 else '.jpg'}")
    return root


def test_a_folder_of_any_sizes_gives_the_pixels_that_the_service_would_see(tmp_path):
    root = write_images(tmp_path / "images")
    splits = data.load(f"folder:{root}", config())
    assert splits.class_names == ("cat", "dog") and len(splits.train) == 20 - 12
    (images, labels), *_ = list(data.in_order(splits.train, 5))
    assert images.shape == (5, 16, 16, 3)
    for position in range(5):
        path = splits.train.paths[position]
        assert np.array_equal(images[position].numpy(), decode(path.read_bytes(), splits.image_spec))
        assert splits.class_names[labels[position]] == path.parent.name


@pytest.mark.slow
def test_worker_processes_deliver_the_same_images_in_the_same_order(tmp_path):
    splits = data.load(f"folder:{write_images(tmp_path / 'images')}", config())
    alone = data.as_array(splits.train, batch_size=3, num_workers=0)
    assert np.array_equal(alone, data.as_array(splits.train, batch_size=3, num_workers=2))


def test_train_and_test_folders_are_kept_apart(tmp_path):
    write_images(tmp_path / "images" / "train")
    write_images(tmp_path / "images" / "test", per_class=3, seed=1)
    splits = data.load(f"folder:{tmp_path / 'images'}", config())
    assert len(splits.test) == 6 and {path.parts[-3] for path in splits.test.paths} == {"test"}
    assert {path.parts[-3] for path in splits.train.paths} == {"train"}


def test_a_val_folder_beside_test_is_the_validation_split(tmp_path):
    for name, per_class in (("train", 10), ("val", 3), ("test", 4)):
        write_images(tmp_path / "images" / name, per_class=per_class, seed=per_class)
    splits = data.load(f"folder:{tmp_path / 'images'}", config())
    assert {path.parts[-3] for path in splits.validation.paths} == {"val"} and len(splits.validation) == 6
    assert {path.parts[-3] for path in splits.test.paths} == {"test"} and len(splits.test) == 8
    assert (len(splits.train), len(splits.calibration)) == (16, 4)


def test_a_val_folder_without_test_is_the_test_split(tmp_path):
    for name, per_class in (("train", 10), ("val", 3)):
        write_images(tmp_path / "images" / name, per_class=per_class, seed=per_class)
    splits = data.load(f"folder:{tmp_path / 'images'}", config())
    assert {path.parts[-3] for path in splits.test.paths} == {"val"} and len(splits.validation) == 4


def test_train_is_a_class_where_there_are_others_beside_it(tmp_path):
    splits = data.load(f"folder:{write_images(tmp_path / 'images', ('bus', 'train'))}", config())
    assert splits.class_names == ("bus", "train")


def test_broken_files_are_named_once_and_left_out_in_every_stage(tmp_path, caplog):
    root = write_images(tmp_path / "images")
    (root / "cat" / "003.png").write_bytes(b"not an image")
    (root / "dog" / "004.jpg").write_bytes((root / "dog" / "004.jpg").read_bytes()[:200])
    with caplog.at_level(logging.WARNING):
        for _ in range(2):  # the second time from the cache
            assert len(data.load(f"folder:{root}", config()).train) == 18 - 12
    assert caplog.text.count("cat/003.png") == caplog.text.count("dog/004.jpg") == 1


def test_a_broken_file_is_fatal_if_strict(tmp_path):
    root = write_images(tmp_path / "images")
    (root / "cat" / "003.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"cat/003\.png: expected an image"):
        data.load(f"folder:{root}", config(strict=True))


def test_a_file_that_was_mended_is_checked_again(tmp_path):
    root = write_images(tmp_path / "images")
    good = (root / "cat" / "003.png").read_bytes()
    (root / "cat" / "003.png").write_bytes(b"not an image")
    assert len(data.load(f"folder:{root}", config()).train) == 19 - 12
    (root / "cat" / "003.png").write_bytes(good)
    assert len(data.load(f"folder:{root}", config()).train) == 20 - 12


def test_checked_files_are_not_decoded_again(tmp_path, monkeypatch):
    root = write_images(tmp_path / "images")
    data.load(f"folder:{root}", config())
    monkeypatch.setattr(file_facts, "open_picture", lambda *arguments: pytest.fail("decoded again"))
    data.load(f"folder:{root}", config())


@pytest.mark.slow
def test_many_files_are_checked_in_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(file_facts, "MIN_FILES_FOR_PROCESSES", 5)
    root = write_images(tmp_path / "images")
    (root / "cat" / "003.png").write_bytes(b"not an image")
    assert len(data.load(f"folder:{root}", config(num_workers=1)).train) == 19 - 12


def test_bad_folders_are_refused_with_the_cause(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "hollow" / "cat").mkdir(parents=True)
    (tmp_path / "hollow" / "dog").mkdir()
    write_images(tmp_path / "single", ("cat",))
    for name in ("cat", "dog"):
        (tmp_path / "rubbish" / name).mkdir(parents=True)
        (tmp_path / "rubbish" / name / "a.png").write_bytes(b"rubbish")
    for name, message in (
        ("none", "no such folder"),
        ("empty", "is empty; expected a sub-folder for each class"),
        ("single", "at least two classes, a sub-folder each, got only 'cat'"),
        ("hollow", "holds no images"),
        ("rubbish", "none of 2 files is a readable image; the first is .*a.png"),
    ):
        with pytest.raises(DataError, match=message):
            data.load(f"folder:{tmp_path / name}", config())


def test_a_test_class_that_was_never_trained_is_refused(tmp_path):
    write_images(tmp_path / "images" / "train")
    write_images(tmp_path / "images" / "test", ("cat", "eel"), per_class=1)
    with pytest.raises(DataError, match="class 'eel' is not among the training classes cat, dog"):
        data.load(f"folder:{tmp_path / 'images'}", config())


def test_an_outside_folder_needs_no_classes(tmp_path):
    inside = data.load(f"folder:{write_images(tmp_path / 'inside')}", config())
    strangers = write_images(tmp_path / "outside", ("any",), per_class=3)
    Image.new("L", (50, 30), 7).save(strangers / "flat.png")
    outside = data.load_outside(f"folder:{strangers}", config(), inside)
    assert len(outside) == 4 and data.as_array(outside).shape == (4, 16, 16, 3)


def test_a_file_removed_while_training_is_named(tmp_path):
    splits = data.load(f"folder:{write_images(tmp_path / 'images')}", config())
    splits.train.paths[2].unlink()
    with pytest.raises(DataError, match=f"{splits.train.paths[2].name}: changed or removed"):
        list(data.in_order(splits.train, 4))


def test_the_shorter_side_is_resized_and_the_centre_cropped(tmp_path):
    splits = data.load(f"folder:{write_images(tmp_path / 'images')}", config(resize_shorter_side=20))
    assert splits.image_spec.resize_shorter_side == 20
    assert data.as_array(splits.test).shape == (4, 16, 16, 3)
