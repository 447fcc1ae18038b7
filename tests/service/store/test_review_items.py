"""What is kept for review: bounds, order, paging, faults; on both engines."""

import errno
import json
import math
import os
import subprocess
import sys
import time

import pytest

from portcullis.errors import DatabaseDamaged, ReviewFailure, UnknownReviewItem
from portcullis.store.postgresql import Postgres
from portcullis.store.review_images import ORPHAN_SECONDS, ImageFiles, ImageRows
from portcullis.store.review_items import (
    Bounds,
    ReviewStore,
    extension_of,
)
from tests.service.pictures import RED, encode

LARGE = Bounds(1000, 10**9, 10**6)


def answer(p_value=0.01, score=-5.0, **changes):
    return {
        "model": "m", "version": 1, "label": "cat", "probability": 0.7, "score": score, "p_value": p_value,
        "threshold": -4.0, "operating_point": "accept95", "verdict": "reject", "reason": "stranger",
        "candidates": ["cat", "dog"], "is_sampled": False, "request_id": "from-a-header",
    } | changes  # fmt: skip


class Kept:
    """Stores with bounds of their own on one database, and a way to see which images lie there."""

    def __init__(self, database, images, directory):
        self.database, self.images, self.directory = database, images, directory

    def store(self, bounds=LARGE):
        store = ReviewStore(self.database, self.images, bounds)
        store.prepare()
        return store

    def files(self):
        if isinstance(self.images, ImageRows):
            return sorted(row["id"] for row in self.database.read("SELECT id FROM review_images"))
        return sorted(file.stem for file in self.directory.iterdir())


@pytest.fixture
def queue(tmp_path, database):
    """Both engines as they are used: images in files beside SQLite, in rows of PostgreSQL."""
    directory = tmp_path / "images"
    return Kept(database, ImageRows() if isinstance(database, Postgres) else ImageFiles(directory), directory)


@pytest.fixture
def queue_of_files(tmp_path, local):
    return Kept(local, ImageFiles(tmp_path / "images"), tmp_path / "images")


def image(number, size=100):
    return b"\x89PNG" + number.to_bytes(4, "big") + bytes(size - 8)


def kept(store, **equal_to):
    return store.page({"model": None, **equal_to}, 1000).rows


def test_an_image_that_comes_again_counts_as_drawn_once_it_was(queue):
    """Accepted images are kept when they are drawn, be it the third time; so rejected ones must count as drawn then."""
    store = queue.store()
    for is_sampled, expected in ((False, 0), (True, 1), (False, 1)):
        store.add([(image(1), answer(is_sampled=is_sampled))])
        [row] = kept(store)
        assert row["is_sampled"] == expected
    assert row["num_seen"] == 3
    assert [drawn["id"] for drawn in store.sampled("m", "open")] == [row["id"]]


def test_only_images_that_were_drawn_are_a_sample(queue):
    store = queue.store()
    store.add([(image(number), answer(is_sampled=number % 2 == 0)) for number in range(6)])
    for row in kept(store)[:4]:
        store.decide(row["id"], "labelled", "cat", "me")
    found = [store.sampled("m", state) for state in ("labelled", "open")]
    assert sum(map(len, found)) == 3
    assert all(
        row["is_sampled"] and row["state"] == state
        for state, rows in zip(("labelled", "open"), found, strict=True)
        for row in rows
    )
    assert store.sampled("other", "open") == []


def test_an_item_is_kept_with_its_answer_and_its_very_bytes(queue):
    store = queue.store()
    assert store.add([(RED, answer())]) == 1
    [row] = kept(store)
    assert {name: row[name] for name in ("model", "label", "score", "p_value", "verdict", "state")} == {
        "model": "m", "label": "cat", "score": -5.0, "p_value": 0.01, "verdict": "reject", "state": "open",
    }  # fmt: skip
    assert store.image(row["id"]) == (RED, "image/png")


def test_files_of_users_are_for_nobody_else(queue_of_files):
    queue_of_files.store()
    assert (queue_of_files.directory.stat().st_mode & 0o077) == 0


def test_images_of_either_kind_go_with_their_items_and_are_missed_as_such(queue):
    store = queue.store()
    store.add([(RED, answer())])
    [row] = kept(store)
    queue.images.remove([f"{row['id']}.png"])
    with queue.database.writing() as session:
        session.run("DELETE FROM review_images")
    with pytest.raises(UnknownReviewItem, match="just been removed"):
        store.image(row["id"])
    for nobody in ("nope", "\0"):
        with pytest.raises(UnknownReviewItem):
            store.image(nobody)


def test_the_count_is_bounded_and_the_oldest_go_first(queue):
    store = queue.store(Bounds(3, 10**9, 10**6))
    for number in range(5):
        store.add([(image(number), answer(label=str(number)))])
    assert sorted(row["label"] for row in kept(store)) == ["2", "3", "4"]
    assert queue.files() == sorted(row["id"] for row in kept(store))


def test_the_bytes_are_bounded_and_the_oldest_go_first(queue):
    store = queue.store(Bounds(1000, 1000, 10**6))
    for number, size in enumerate((400, 300, 200, 350)):
        store.add([(image(number, size), answer(label=str(number)))])
    assert sorted(row["label"] for row in kept(store)) == ["1", "2", "3"]
    assert sum(row["num_bytes"] for row in kept(store)) == 850


@pytest.mark.parametrize("bounds", [Bounds(2, 10**9, 10**6), Bounds(1000, 250, 10**6)], ids=["count", "bytes"])
@pytest.mark.parametrize("state", ["labelled", "dismissed", "open"])
def test_age_alone_decides_what_goes_whatever_its_state_or_strangeness(queue, bounds, state):
    store = queue.store(bounds)
    store.add([(image(0), answer(label="0", p_value=0.0)), (image(1), answer(label="1"))])
    store.decide(kept(store, label="0")[0]["id"], state, "dog" if state == "labelled" else None, "me")
    store.add([(image(0), answer(label="0"))])  # seen again: no younger for it
    store.add([(image(2), answer(label="2"))])
    assert sorted(row["label"] for row in kept(store)) == ["1", "2"]


def test_of_images_that_came_in_the_same_instant_the_first_goes_first(queue):
    store = queue.store(Bounds(10, 10**9, 10**6))
    store.add([(image(number), answer(label=f"{number:02}")) for number in range(40)])
    assert sorted(row["label"] for row in kept(store)) == [f"{number:02}" for number in range(30, 40)]


def test_what_is_too_old_goes_even_if_nothing_comes(queue):
    store = queue.store(Bounds(10, 10**9, 60.0))
    store.add([(image(0), answer(label="old")), (image(1), answer(label="young"))])
    with queue.database.writing() as session:
        session.run("UPDATE review_items SET created = created - 61 WHERE label = 'old'")
    store.add([])
    assert [row["label"] for row in kept(store)] == ["young"]
    assert queue.files() == [row["id"] for row in kept(store)]


def test_age_is_by_the_clock_of_the_database_whatever_that_of_the_machine_says(queue, monkeypatch):
    store = queue.store(Bounds(10, 10**9, 3600.0))
    store.add([(image(0), answer())])
    monkeypatch.setattr(time, "time", lambda: 1e10)  # of an instance whose clock is centuries ahead
    store.add([(image(1), answer())])
    first, second = sorted(row["created"] for row in kept(store))
    assert 0 <= second - first < 3600


def test_the_same_image_is_kept_once_and_counted(queue):
    store = queue.store()
    assert store.add([(image(1), answer()), (image(1), answer()), (image(2), answer())]) == 2
    assert store.add([(image(1), answer()), (image(1), answer(model="other"))]) == 1
    seen = {(row["model"], row["digest"][:4]): row["num_seen"] for row in kept(store)}
    assert sorted(seen.values()) == [1, 1, 3]


def test_the_strangest_come_first_and_nan_is_the_strangest(queue):
    store = queue.store()
    scores = [(0.5, -1.0), (0.001, -9.0), (0.001, -30.0), (0.2, -3.0), (0.001, math.nan)]
    store.add([(image(i), answer(p, s, label=str(i))) for i, (p, s) in enumerate(scores)])
    assert [row["label"] for row in kept(store)] == ["4", "2", "1", "3", "0"]
    assert kept(store)[0]["score"] is None


def test_pages_miss_and_repeat_nothing_while_items_come_and_go(queue):
    store = queue.store()
    store.add([(image(i), answer(0.001 * (i // 3), -float(i % 3))) for i in range(20)])
    first = {row["id"] for row in kept(store)}
    seen, position = [], None
    for step in range(100):
        page = store.page({}, 3, position)
        seen += [row["id"] for row in page.rows]
        store.add([(image(100 + step), answer(0.0))])  # stranger than all: before every page
        position = page.next_position
        if position is None:
            break
    assert len(seen) == len(set(seen)) and set(seen) == first


def test_filters_choose_and_count(queue):
    store = queue.store()
    store.add([(image(0), answer(label="cat")), (image(1), answer(label="dog", verdict="accept"))])
    page = store.page({"label": "dog", "verdict": "accept", "state": None}, 10)
    assert (page.num_items, page.rows[0]["label"], page.next_position) == (1, "dog", None)
    assert store.page({"label": "' OR 1 --"}, 10).num_items == 0


def test_a_decision_is_kept_and_can_be_taken_back(queue):
    store = queue.store()
    store.add([(image(0), answer())])
    identifier = kept(store)[0]["id"]
    row = store.decide(identifier, "labelled", "dog", "me")
    assert (row["state"], row["true_label"], row["decided_by"]) == ("labelled", "dog", "me")
    row = store.decide(identifier, "open", None, None)
    assert (row["state"], row["true_label"], row["decided_by"]) == ("open", None, None)
    with pytest.raises(UnknownReviewItem):
        store.decide("nope", "dismissed", None, "me")


def test_nothing_of_the_request_but_the_image_and_its_answer_is_kept(queue):
    store = queue.store()
    store.add([(image(0), answer())])
    assert "request_id" not in kept(store)[0]
    assert "from-a-header" not in str(queue.database.read("SELECT * FROM review_items"))


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_the_ending_follows_from_the_bytes(format):
    import numpy as np

    expected = {"JPEG": "jpg", "TIFF": "tif"}.get(format, format.lower())
    assert extension_of(encode(np.zeros((4, 4, 3), np.uint8), format)) == expected


def test_a_disk_that_fills_in_the_middle_leaves_neither_row_nor_file(queue_of_files, monkeypatch):
    store = queue_of_files.store()
    written = []

    def full(path, content):
        written.append(path)
        os.close(os.open(path, os.O_CREAT))
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        store.add([(image(i), answer()) for i in range(3)])
    assert kept(store) == [] and queue_of_files.files() == []


def test_files_that_a_crash_left_behind_are_swept_away(queue_of_files):
    store, directory = queue_of_files.store(), queue_of_files.directory
    store.add([(image(0), answer())])
    orphan, young = directory / "dead.png", directory / "young.png"
    for file in (orphan, young):
        file.write_bytes(b"x")
    os.utime(orphan, (0, time.time() - ORPHAN_SECONDS - 1))
    queue_of_files.store()
    assert not orphan.exists() and young.exists() and len(queue_of_files.files()) == 2


def test_a_broken_database_is_said_to_be_broken(queue_of_files):
    store, file = queue_of_files.store(), queue_of_files.database.file
    for ending in ("", "-wal"):
        file.with_name(file.name + ending).write_bytes(b"not a database" * 100)
    with pytest.raises(ReviewFailure):
        store.page({}, 10)
    with pytest.raises(DatabaseDamaged):
        store.add([(image(0), answer())])
    assert queue_of_files.files() == []


def test_several_processes_write_to_one_queue(queue, tmp_path, request):
    settings = {"runtime_directory": str(tmp_path), "review_enabled": True, "review_max_items": 50}
    if isinstance(queue.database, Postgres):
        settings["database"] = request.getfixturevalue("fleet_url")
    program = """
import json, sys
from prometheus_client import CollectorRegistry
from portcullis.answering.review_queue import review_of
from portcullis.processes.stores import stores_of
from portcullis.settings import Settings
from portcullis.telemetry.instruments import Metrics
number, settings = int(sys.argv[1]), Settings(**json.loads(sys.argv[2]))
store = review_of(settings, stores_of(settings).shared, Metrics(CollectorRegistry())).store
store.prepare()
for i in range(20):
    store.add([(bytes([i, number]) * 50, json.loads(sys.argv[3]))])
"""
    arguments = (json.dumps(settings), json.dumps(answer()))
    workers = [subprocess.Popen([sys.executable, "-c", program, str(n), *arguments]) for n in range(3)]
    assert [worker.wait(120) for worker in workers] == [0, 0, 0]
    queue.directory = tmp_path / "review" / "images"
    store = queue.store()
    assert store.page({}, 1).num_items == 50
    assert queue.files() == sorted(row["id"] for row in kept(store))
    [totals] = queue.database.read("SELECT * FROM review_totals")
    assert (totals["num_items"], totals["num_bytes"], totals["num_ever"]) == (50, 5000, 60)
