"""Photos that are the same or nearly so: what is left out, what stays together, and what is told of it."""

import io
import itertools
import logging
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from portcullis_training import data
from portcullis_training.config import RunConfig
from portcullis_training.data import duplicates, file_facts, folder, inspection

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
PHOTOGRAPHS = sorted(EXAMPLES.glob("*.jpg"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def config(**fields) -> RunConfig:
    options = {"validation_size": 4, "calibration_size": 4, "test_size": 4, "image_size": 32, "num_workers": 0}
    return RunConfig(**{**options, **fields})


def photograph(path: Path, number: int) -> Path:
    """A picture that resembles no other: soft random blobs, as a blurred photograph has them."""
    cells = np.random.default_rng(number).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(cells).resize((96, 72), Image.Resampling.BICUBIC).save(path)
    return path


def write_classes(root: Path, classes: tuple[str, ...] = ("cat", "dog"), per_class: int = 12, first: int = 0) -> Path:
    for label, name in enumerate(classes):
        for index in range(per_class):
            photograph(root / name / f"{index:02}.png", first + 100 * label + index)
    return root


def look(root: Path, **fields) -> inspection.Inspection:
    return folder.look_into(str(root), config(**fields)).inspection


def altered(picture: Image.Image) -> dict[str, Image.Image]:
    """What happens to photos on their way."""
    recompressed = io.BytesIO()
    picture.save(recompressed, "JPEG", quality=40)
    width, height = picture.size
    return {
        "recompressed": Image.open(recompressed),
        "smaller": picture.resize((width // 3, height // 3), Image.Resampling.LANCZOS),
        "brighter": ImageEnhance.Brightness(picture).enhance(1.15),
        "trimmed": picture.crop((width // 100, height // 100, width - width // 100, height - height // 100)),
    }


@pytest.mark.parametrize("path", PHOTOGRAPHS, ids=lambda path: path.stem)
def test_a_photograph_that_was_recompressed_resized_or_trimmed_is_recognised(path):
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    versions = [picture, *(version.convert("RGB") for version in altered(picture).values())]
    pairs = duplicates.near_pairs(duplicates.from_bytes([duplicates.thumbnail(version) for version in versions]))
    assert {(0, other) for other in range(1, len(versions))} <= {tuple(pair) for pair in pairs.tolist()}


def test_different_photographs_are_no_twins_nor_are_plain_surfaces():
    pictures = [Image.open(path).convert("RGB") for path in PHOTOGRAPHS]
    pictures += [Image.new("RGB", (50, 40), colour) for colour in ("white", "grey", "beige", "brown")]
    thumbnails = duplicates.from_bytes([duplicates.thumbnail(picture) for picture in pictures])
    assert len(duplicates.near_pairs(thumbnails)) == 0


def near_by_definition(thumbnails) -> list[tuple[int, int]]:
    """Two by two, in the order of their positions."""
    bits = np.unpackbits(duplicates.difference_hashes(thumbnails).view(np.uint8), axis=1)

    def are_near(one, other):
        colours = np.corrcoef([(thumbnails[at] - thumbnails[at].mean((0, 1))).ravel() for at in (one, other)])
        return (bits[one] != bits[other]).sum() <= 36 and colours[0, 1] >= 0.95

    return [pair for pair in itertools.combinations(range(len(thumbnails)), 2) if are_near(*pair)]


@pytest.mark.parametrize(("rows", "columns"), [(64, 4096), (3, 7), (7, 3), (1, 1)])
def test_the_pairs_are_those_of_comparing_every_two(monkeypatch, rows, columns):
    random = np.random.default_rng(0)
    soft = random.integers(0, 256, (20, 4, 4, 3), dtype=np.uint8).repeat(4, axis=1).repeat(5, axis=2)[:, :, :17]
    noise = random.normal(0, 1, (3, *soft.shape)) * np.array([1, 4, 30])[:, None, None, None, None]
    gradual = soft * 0.5 + np.arange(17)[:, None] * 8 * random.choice([-1, 1], (20, 1, 1, 1)) + 64
    thumbnails = np.concatenate([gradual, *(gradual + some for some in noise)]).clip(0, 255).astype(np.uint8)
    monkeypatch.setattr(duplicates, "ROWS", rows)
    monkeypatch.setattr(duplicates, "COLUMNS", columns)
    expected = near_by_definition(thumbnails)
    assert 20 < len(expected) < 120, "some of those with noise are near, and some are not"
    assert list(map(tuple, duplicates.near_pairs(thumbnails).tolist())) == expected


def test_pairs_are_found_across_the_blocks_that_they_are_sought_in(monkeypatch):
    random = np.random.default_rng(0)
    thumbnails = random.integers(0, 256, (30, 16, 17, 3), dtype=np.uint8)
    thumbnails[29], thumbnails[17] = thumbnails[0], thumbnails[16]
    monkeypatch.setattr(duplicates, "ROWS", 3)
    monkeypatch.setattr(duplicates, "COLUMNS", 4)
    assert sorted(map(tuple, duplicates.near_pairs(thumbnails).tolist())) == [(0, 29), (16, 17)]


def test_groups_are_connected_pairs():
    groups = duplicates.groups_of(6, np.array([[0, 3], [3, 5], [1, 2]]))
    assert groups[0] == groups[3] == groups[5] and groups[1] == groups[2] and len(set(groups.tolist())) == 3


def test_copies_under_different_labels_are_left_out_and_named(tmp_path, caplog):
    root = write_classes(tmp_path)
    (root / "dog" / "wrong.png").write_bytes((root / "cat" / "03.png").read_bytes())
    found = look(root)
    assert [[photo.path.name for photo in group] for group in found.conflicting] == [["03.png", "wrong.png"]]
    with caplog.at_level(logging.WARNING):
        splits = data.load(f"folder:{root}", config())
    names = {str(path.relative_to(root)) for part in parts(splits) for path in part.paths}
    assert not names & {"cat/03.png", "dog/wrong.png"} and len(names) == 23
    assert "cat/03.png" in caplog.text and "dog/wrong.png, under another label" in caplog.text


def test_of_copies_under_one_label_one_is_kept(tmp_path, caplog):
    root = write_classes(tmp_path)
    (root / "cat" / "copy.png").write_bytes((root / "cat" / "03.png").read_bytes())
    with caplog.at_level(logging.WARNING):
        splits = data.load(f"folder:{root}", config())
    assert sum(len(part) for part in parts(splits)) == 24 and "left out 1 copies" in caplog.text


def parts(splits):
    return [splits.train, splits.validation, splits.calibration, splits.test]


@pytest.mark.parametrize("seed", range(8))
def test_near_duplicates_are_on_one_side_of_the_split(tmp_path, seed):
    root = write_classes(tmp_path)
    for name in ("03", "07"):
        with Image.open(root / "cat" / f"{name}.png") as picture:
            for kind, version in altered(picture).items():
                version.save(root / "cat" / f"{name}-{kind}.jpg")
    assert sorted(len(group) for group in look(root).twins) == [5, 5]
    splits = data.load(f"folder:{root}", config(split_seed=seed, validation_size=6, calibration_size=6))
    for name in ("03", "07"):
        holding = [part for part in parts(splits) if any(path.match(f"cat/{name}*") for path in part.paths)]
        assert len(holding) == 1


def test_a_training_photo_that_nearly_equals_a_test_photo_is_left_out(tmp_path, caplog):
    write_classes(tmp_path / "train")
    write_classes(tmp_path / "test", per_class=4, first=1000)
    with Image.open(tmp_path / "test" / "dog" / "02.png") as picture:
        altered(picture)["recompressed"].save(tmp_path / "train" / "dog" / "leak.jpg")
    (tmp_path / "train" / "cat" / "copy.png").write_bytes((tmp_path / "test" / "cat" / "01.png").read_bytes())
    found = look(tmp_path)
    assert [(lost.path.name, kept.path.parts[-3:]) for lost, kept in found.leaked] == [
        ("leak.jpg", ("test", "dog", "02.png"))
    ]
    assert [group[0].part for group in found.copies] == ["test"]
    with caplog.at_level(logging.WARNING):
        splits = data.load(f"folder:{tmp_path}", config())
    assert len(splits.test) == 8 and sum(map(len, parts(splits))) == 24 + 8
    assert "1 photos that nearly equal one in a test folder" in caplog.text


def test_what_was_found_is_remembered_and_a_broken_memory_is_no_harm(tmp_path, monkeypatch):
    root = write_classes(tmp_path / "photos")
    first = look(root)
    with monkeypatch.context() as patch:
        patch.setattr(duplicates, "near_pairs", lambda thumbnails: pytest.fail("sought again"))
        assert [photo.facts for photo in look(root).photos] == [photo.facts for photo in first.photos]
    for kept in Path(os.environ["XDG_CACHE_HOME"]).rglob("*.sqlite"):
        kept.write_bytes(b"not a database at all, but long enough to be taken for one" * 20)
    assert [photo.path for photo in look(root).photos] == [photo.path for photo in first.photos]


def test_facts_are_kept_as_they_are_found(tmp_path, monkeypatch):
    root = write_classes(tmp_path / "photos")
    original, seen = file_facts.look_at, []

    def interrupted(path, spec):
        seen.append(path)
        if len(seen) == 10:
            raise KeyboardInterrupt
        return original(path, spec)

    monkeypatch.setattr(file_facts, "FILES_KEPT_AT_ONCE", 4)
    monkeypatch.setattr(file_facts, "look_at", interrupted)
    with pytest.raises(KeyboardInterrupt):
        look(root)
    assert len(look(root).photos) == 24 and len(seen) == 10 + 24 - 8  # two portions of four were kept


def test_sizes_are_those_of_the_files(tmp_path):
    root = write_classes(tmp_path)
    assert {(photo.facts.width, photo.facts.height) for photo in look(root).photos} == {(96, 72)}
