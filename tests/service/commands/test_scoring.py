"""A folder is scored alike by a service and straight from a bundle."""

import os
import pickle

import numpy as np
import pytest

from portcullis.bundle.engine import Engine
from portcullis.bundle.promises import choose
from portcullis.client import AsyncClient, Refused
from portcullis.commands.scoring.by_bundle import BATCH_IMAGES, BundleScorer
from portcullis.commands.scoring.by_service import score_by_service
from portcullis.commands.scoring.images import Folder, images_at, name_of
from portcullis.errors import PortcullisError
from tests import tiny
from tests.service.pictures import BROKEN, RED, STRANGE, encode


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "deep" / "er").mkdir(parents=True)
    images, _ = tiny.familiar(4 * BATCH_IMAGES + 3, seed=6)
    for number, image in enumerate(images):
        (folder / "deep" / f"{number:03}.png").write_bytes(encode(image))
    (folder / "deep" / "er" / "strange.JPEG").write_bytes(STRANGE)
    (folder / "broken.png").write_bytes(BROKEN)
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_every_image_below_is_found_and_nothing_else(folder):
    names = Folder(folder).find()
    assert len(names) == 4 * BATCH_IMAGES + 6 and names == sorted(names)
    assert {"broken.png", "deep/er/strange.JPEG"} <= set(names) and "notes.txt" not in names
    with pytest.raises(PortcullisError, match="expected a folder"):
        images_at(str(folder / "broken.png")).find()


def test_a_name_that_is_no_utf8_still_has_a_name(tmp_path):
    file = tmp_path / os.fsdecode(b"caf\xe9.png")
    file.touch()
    assert [name_of(key) for key in Folder(tmp_path).find()] == ["caf\\xe9.png"]


async def test_service_and_bundle_agree_on_every_file(folder, bundle, models, running_service):
    images = Folder(folder)
    keys = images.find()
    by_service = []
    async with AsyncClient(running_service.url) as client:
        await score_by_service(client, images, keys, {}, 8, by_service.append)
    from portcullis.bundle.files import load_bundle

    loaded = load_bundle(models / "tiny" / "1")
    chosen = choose("accept95", loaded.manifest)
    by_bundle = list(BundleScorer(loaded, Engine(loaded), chosen).score(images, keys, 2))
    assert [row.file for row in by_bundle] == keys
    found = {row.file: row for row in by_service}
    for row in by_bundle:
        other = found.pop(row.file)
        assert (row.label, row.verdict, row.reason, row.threshold, row.error) == (
            other.label, other.verdict, other.reason, other.threshold, other.error,
        )  # fmt: skip
        for name in ("score", "mmles", "probability", "p_value"):
            assert getattr(row, name) == pytest.approx(getattr(other, name), abs=1e-5)
    assert not found
    errors = {row.file: row.error for row in by_bundle if row.error}
    assert set(errors) == {"broken.png", "empty.jpg"} and all(e.startswith("bad_image: ") for e in errors.values())
    assert [row.verdict for row in by_bundle if row.file.endswith("JPEG")] == ["reject"]


async def test_what_is_not_the_files_fault_ends_the_run(folder, running_service):
    rows = []
    async with AsyncClient(running_service.url) as client:
        with pytest.raises(Refused, match="no model 'nope'"):
            await score_by_service(client, Folder(folder), Folder(folder).find(), {"model": "nope"}, 4, rows.append)
    assert rows == []


def test_scores_are_those_of_the_formula(folder, models):
    from portcullis.bundle.files import load_bundle

    loaded = load_bundle(models / "tiny" / "1")
    images, _ = tiny.familiar(4 * BATCH_IMAGES + 3, seed=6)
    chosen = choose("-4.0", tiny.manifest())
    keys = [key for key in Folder(folder).find() if key.startswith("deep/") and key.endswith(".png")]
    rows = list(BundleScorer(loaded, Engine(loaded), chosen).score(Folder(folder), keys, 2))
    probabilities, scores = tiny.answers(images)
    assert np.allclose([row.score for row in rows], scores, atol=1e-4)
    assert [row.class_index for row in rows] == probabilities.argmax(axis=1).tolist()
    assert [row.verdict for row in rows] == ["accept" if score >= -4.0 else "reject" for score in scores]


def test_images_in_an_object_store_are_found_and_read(monkeypatch):
    """One that has gone meanwhile is a row; a store that is away ends the run, which can be taken up again."""
    pytest.importorskip("s3fs")
    from tests.object_store import object_store

    with object_store() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        url = store.bucket("pictures")
        for name in ("a/one.png", "a/notes.txt", "two.JPG"):
            store.write("pictures", name, RED)
        images = images_at(url)
        assert images.find() == ["a/one.png", "two.JPG"]
        assert pickle.loads(pickle.dumps(images)).read("a/one.png") == RED
        with pytest.raises(FileNotFoundError):
            images.read("gone.png")
        with pytest.raises(PortcullisError, match="found nothing"):
            images_at(f"{url}/nowhere").find()
        store.go_away()
        with pytest.raises(PortcullisError, match=r"cannot read s3://pictures/models/two\.JPG"):
            images.read("two.JPG")
