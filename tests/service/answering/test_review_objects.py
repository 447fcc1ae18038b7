"""Images of the review queue in an object store: a real S3-compatible server, as all instances of a fleet reach it."""

import httpx
import pytest

from portcullis.answering import review_objects
from portcullis.answering.review_objects import ImageObjects
from portcullis.client import Client
from portcullis.errors import ReviewFailure, SettingsError, UnknownReviewItem
from portcullis.settings import Settings
from portcullis.store.review_items import Bounds, ReviewStore
from tests.hammer import eventually
from tests.object_store import object_store
from tests.running import ADMIN_KEY, RunningService
from tests.service.pictures import RED, STRANGE
from tests.service.store.test_review_items import answer, kept

LARGE = Bounds(1000, 10**9, 10**6)


@pytest.fixture(scope="module")
def one_store():
    with object_store() as store:
        store.bucket("kept")
        yield store


@pytest.fixture
def bucket(one_store, monkeypatch):
    for name, value in one_store.environment.items():
        monkeypatch.setenv(name, value)
    yield one_store
    one_store.come_back()


@pytest.fixture
def images(bucket, request):
    return ImageObjects(f"s3://kept/{request.node.name}")


def names_in(images):
    files, root = images._place("")
    return {path.rpartition("/")[2] for path in files.find(root)}


def test_an_image_lies_in_the_store_and_its_item_in_the_database(database, images):
    store = ReviewStore(database, images, LARGE)
    store.prepare()
    store.add([(RED, answer())])
    [row] = kept(store)
    assert names_in(images) == {f"{row['id']}.png"}
    assert store.image(row["id"]) == (RED, "image/png")
    assert database.read("SELECT id FROM review_images") == []


def test_an_image_goes_with_its_item_and_is_missed_as_such(local, images):
    store = ReviewStore(local, images, Bounds(1, 10**9, 10**6))
    store.prepare()
    store.add([(RED, answer())])
    store.add([(STRANGE, answer())])
    [row] = kept(store)
    assert names_in(images) == {f"{row['id']}.png"}
    images.remove(names_in(images))
    with pytest.raises(UnknownReviewItem, match="just been removed"):
        store.image(row["id"])


def test_what_a_crash_has_left_is_swept_away_and_nothing_else(local, images, monkeypatch):
    store = ReviewStore(local, images, LARGE)
    store.add([(RED, answer())])
    [row] = kept(store)
    images.write(None, "0123456789abcdef.png", STRANGE)
    store.prepare()
    assert len(names_in(images)) == 2  # it is young: its item may be on its way
    monkeypatch.setattr(review_objects, "ORPHAN_SECONDS", -1)
    store.prepare()
    assert names_in(images) == {f"{row['id']}.png"}


def test_a_store_that_is_away_is_said_to_be_so(local, images, bucket):
    store = ReviewStore(local, images, LARGE)
    store.add([(RED, answer())])
    [row] = kept(store)
    bucket.go_away()
    with pytest.raises(ReviewFailure, match="cannot be reached"):
        store.image(row["id"])


@pytest.mark.parametrize("place", ["https://host/images", "hf://somebody/images", "s3://key:secret@bucket/images"])
def test_a_place_that_takes_no_images_is_refused_at_the_start(place):
    with pytest.raises(ValueError, match="s3://, gs:// or az://"):
        Settings(review_directory=place)


def test_a_store_whose_library_is_missing_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gcsfs", None)
    with pytest.raises(SettingsError, match="extra gcs"):
        ImageObjects("gs://bucket/images").prepare()


@pytest.mark.slow
def test_a_service_keeps_its_images_there_and_shows_them(models, tmp_path, bucket):
    flags = ("--review-enabled", "--review-directory", "s3://kept/service", "--workers", "1")
    with (
        RunningService(models, tmp_path, *flags, environment=bucket.environment) as service,
        Client(service.url, ADMIN_KEY) as client,
    ):

        def found():  # an item is dropped rather than waited for, so one picture alone proves nothing
            httpx.post(f"{service.url}/v1/predict", content=STRANGE, timeout=30).raise_for_status()
            return list(client.review_items())

        [item] = eventually(found)
        assert client.review_image(item.id) == STRANGE
    assert names_in(ImageObjects("s3://kept/service")) == {f"{item.id}.png"}
    assert not (tmp_path / "review").exists()
