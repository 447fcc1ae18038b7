"""The review queue behind the routes: what it takes, what it drops, and that no fault of it reaches an answer."""

import subprocess
import threading
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from portcullis.answering import review_queue as review
from portcullis.answering.review_queue import NoReview, ReviewQueue, review_of
from portcullis.client import Client, Refused
from portcullis.client.export import export_review
from portcullis.settings import Settings
from portcullis.store.review_images import ImageFiles
from portcullis.store.review_items import Bounds, ReviewStore
from portcullis.store.sqlite import Sqlite
from portcullis.telemetry.instruments import Metrics
from tests import tiny
from tests.hammer import PATIENCE_SECONDS, eventually
from tests.running import ADMIN_KEY, RunningService
from tests.service.conftest import PREDICT_KEY
from tests.service.pictures import RED, STRANGE, encode
from tests.service.store.test_review_items import LARGE, answer, image


class Instruments(Metrics):
    def __init__(self):
        super().__init__(CollectorRegistry())

    def items(self, result):
        return self.registry.get_sample_value("portcullis_review_items_total", {"result": result}) or 0

    def failed(self):
        return self.registry.get_sample_value("portcullis_review_failed")


@pytest.fixture
def images(tmp_path):
    return ImageFiles(tmp_path / "images")


class HeldStore(ReviewStore):
    """Writes nothing until it is let go."""

    def __init__(self, database, images):
        super().__init__(database, images, LARGE)
        self.is_waiting, self.go_on = threading.Event(), threading.Event()

    def add(self, items):
        self.is_waiting.set()
        assert self.go_on.wait(PATIENCE_SECONDS)
        return super().add(items)


def queue_on(store, metrics, accept_sample=0.0, **options):
    return ReviewQueue(store, accept_sample, 10**6, metrics, **options)


def finish(queue):
    """Close, and wait for longer than a service that is told to stop would."""
    queue.close()
    queue._thread.join(PATIENCE_SECONDS)
    assert not queue._thread.is_alive()


def test_it_is_off_by_default():
    assert type(review_of(Settings(), Sqlite(Path("nowhere")), Instruments())) is NoReview


def test_rejected_images_are_kept_and_accepted_ones_by_chance(local, images):
    metrics, chances = Instruments(), iter([0.05, 0.5, 0.099, 0.05, 0.5])
    queue = queue_on(ReviewStore(local, images, LARGE), metrics, accept_sample=0.1, chance=lambda: next(chances))
    for number in range(3):
        queue.offer(image(number), answer(verdict="accept", label=f"accepted {number}"))
    for number in range(2):
        queue.offer(image(9 + number), answer(verdict="reject", label=f"rejected {number}"))
    finish(queue)
    rows = {row["label"]: bool(row["is_sampled"]) for row in queue.store.page({}, 10).rows}
    assert rows == {"accepted 0": True, "accepted 2": True, "rejected 0": True, "rejected 1": False}
    assert [row["label"] for row in queue.store.page({"is_sampled": False}, 10).rows] == ["rejected 1"]
    assert metrics.items("kept") == 4


def test_an_offer_returns_at_once_and_what_does_not_fit_is_dropped_and_counted(local, images):
    metrics, store = Instruments(), HeldStore(local, images)
    queue = queue_on(store, metrics)
    queue.offer(image(0), answer())
    assert store.is_waiting.wait(PATIENCE_SECONDS)  # now the writer is stuck, and every offer must return all the same
    for number in range(1, 101):
        queue.offer(image(number), answer())
    assert metrics.items("dropped") == 100 - review.MAX_WAITING_ITEMS
    store.go_on.set()
    finish(queue)
    assert metrics.items("kept") == 1 + review.MAX_WAITING_ITEMS


def test_the_memory_that_waits_is_bounded(local, images, monkeypatch):
    monkeypatch.setattr(review, "MAX_WAITING_BYTES", 1000)
    metrics, store = Instruments(), HeldStore(local, images)
    queue = queue_on(store, metrics)
    queue.offer(image(0, 900), answer())
    assert store.is_waiting.wait(PATIENCE_SECONDS)
    for number in range(1, 6):
        queue.offer(image(number, 300), answer())
    assert metrics.items("dropped") == 2
    store.go_on.set()
    finish(queue)


def test_an_image_that_could_never_be_kept_is_dropped(local, images):
    metrics = Instruments()
    queue = ReviewQueue(ReviewStore(local, images, Bounds(10, 500, 10**6)), 0.0, 500, metrics)
    queue.offer(image(0, 501), answer())
    finish(queue)
    assert (metrics.items("dropped"), metrics.items("kept")) == (1, 0)


def test_a_fault_turns_it_off_with_a_metric_and_offers_go_on_returning(tmp_path, local):
    (tmp_path / "review").write_text("a file where the directory should be")
    metrics = Instruments()
    queue = queue_on(ReviewStore(local, ImageFiles(tmp_path / "review"), LARGE), metrics)
    eventually(lambda: metrics.failed() == 1)
    for number in range(200):
        queue.offer(image(number), answer())
    assert not queue._waiting
    finish(queue)


def test_it_goes_on_by_itself_once_its_store_works_again(tmp_path, local, monkeypatch):
    monkeypatch.setattr(review, "RETRY_SECONDS", 0.01)
    obstacle = tmp_path / "review"
    obstacle.write_text("a file where the directory should be")
    metrics = Instruments()
    queue = queue_on(ReviewStore(local, ImageFiles(obstacle), LARGE), metrics)
    eventually(lambda: metrics.failed() == 1)
    obstacle.unlink()
    eventually(lambda: queue._is_on)
    assert metrics.failed() == 1  # an open store is not yet one that keeps anything
    queue.offer(image(0), answer())
    eventually(lambda: metrics.failed() == 0)
    finish(queue)
    assert (metrics.items("kept"), queue.store.page({}, 10).num_items) == (1, 1)


def test_a_store_that_was_slow_once_does_not_keep_the_writer_asleep():
    assert review._rest(seconds=0.01, processor_seconds=0.01) == pytest.approx(0.04)  # a fifth of a core at the most
    assert review._rest(seconds=20.0, processor_seconds=0.01) == review.MAX_WAIT_REST_SECONDS


def test_it_tries_again_soon_after_one_fault_and_seldom_after_many(local, images):
    queue = queue_on(ReviewStore(local, images, LARGE), Instruments())
    pauses = [queue._pause() for _ in range(20)]
    assert pauses[0] <= review.FIRST_RETRY_SECONDS
    assert review.RETRY_SECONDS / 2 <= pauses[-1] <= review.RETRY_SECONDS
    queue.offer(image(0), answer())
    eventually(lambda: queue._num_faults == 0)
    finish(queue)


def test_metrics_tell_a_failure_while_writing(local, images):
    metrics, store = Instruments(), HeldStore(local, images)
    queue = queue_on(store, metrics)
    queue.offer(image(0), answer())
    assert store.is_waiting.wait(PATIENCE_SECONDS)
    local.file.write_bytes(b"not a database" * 500)
    store.go_on.set()
    eventually(lambda: (metrics.failed(), metrics.items("failed")) == (1, 1))
    finish(queue)


# -- through a real service ------------------------------------------------------------------------------------------


def strange(seed):
    import numpy as np

    return encode(np.random.default_rng(seed).integers(0, 256, (tiny.SIZE, tiny.SIZE, 3), dtype=np.uint8))


@pytest.fixture
def admin(reviewed_service):
    with Client(reviewed_service.url, ADMIN_KEY) as client:
        yield client


def test_rejected_images_appear_with_their_answers_are_labelled_and_exported(admin, tmp_path):
    images = [strange(seed) for seed in range(4)]
    answers = [admin.predict(images[0]), admin.predict(images[1])]
    answers += [entry.answer for entry in admin.predict_batch(images[2:])]
    assert {answer.verdict for answer in answers} == {"reject"}
    admin.predict(RED)
    eventually(lambda: admin.review(state="open").num_items >= 4)
    items = {admin.review_image(item.id): item for item in admin.review_items(limit=2)}
    assert RED not in items
    for picture, said in zip(images, answers, strict=True):
        item = items[picture]
        assert (item.label, item.score, item.p_value, item.verdict) == (said.label, said.score, said.p_value, "reject")
    assert sorted(item.p_value for item in items.values()) == [i.p_value for i in admin.review_items()]
    first, second, third = (items[picture].id for picture in images[:3])
    assert admin.label_review(first, "green").decided_by == "tester"
    admin.label_review(second, "sky blue")
    assert admin.dismiss_review(third).state == "dismissed"
    assert export_review(admin, tmp_path) == {"green": 1, "sky blue": 1}
    admin.label_review(first, "sky blue")
    assert export_review(admin, tmp_path) == {"sky blue": 2}
    exported = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.png")}
    assert exported == {f"sky blue/{first}.png", f"sky blue/{second}.png"}
    assert (tmp_path / "sky blue" / f"{first}.png").read_bytes() == images[0]
    assert admin.reopen_review(first).true_label is None


def test_the_training_line_reads_the_export(tmp_path):
    data = pytest.importorskip("portcullis_training.data.folder")
    config = pytest.importorskip("portcullis_training.config")
    for label, seeds in (("green", (1, 2)), ("red", (3,))):
        (tmp_path / label).mkdir()
        for seed in seeds:
            (tmp_path / label / f"{seed}.png").write_bytes(strange(seed))
    source = data.read_folder(str(tmp_path), config.RunConfig(name="x", data=f"folder:{tmp_path}"))
    assert source.class_names == ("green", "red")


def test_looking_needs_an_admin_key(reviewed_service):
    for key, status in ((None, 401), (PREDICT_KEY, 403)):
        with Client(reviewed_service.url, key) as client:
            for call in (client.review, lambda c=client: c.review_image("x"), lambda c=client: c.dismiss_review("x")):
                with pytest.raises(Refused) as caught:
                    call()
                assert caught.value.status == status


@pytest.mark.parametrize("label", ["../up", "a/b", ".hidden", "", " ", "x" * 61, "a\nb"])
def test_a_label_that_is_no_folder_name_is_refused(admin, label):
    with pytest.raises(Refused) as caught:
        admin.label_review("any", label)
    assert caught.value.status == 400


def test_a_wrong_cursor_and_an_unknown_item_are_refused(admin):
    for call, code in (
        (lambda: admin.review(cursor="%%%"), "invalid_parameter"),
        (lambda: admin.review(verdit="reject"), "invalid_parameter"),
        (lambda: admin.review_image("0" * 16), "unknown_review_item"),
    ):
        with pytest.raises(Refused) as caught:
            call()
        assert caught.value.code == code


def test_the_routes_say_so_where_the_queue_is_off(running_service):
    with Client(running_service.url, ADMIN_KEY) as client, pytest.raises(Refused, match="review queue is off"):
        client.review()


@pytest.mark.slow
def test_a_full_disk_turns_the_queue_off_and_answers_go_on(models, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", disk], check=False)
    if mounted.returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        flags = ["--review-enabled", "--review-directory", str(disk / "review"), "--workers", "1"]
        with RunningService(models, tmp_path / "runtime", *flags) as service, Client(service.url, ADMIN_KEY) as client:
            noise = [_large_and_strange(seed) for seed in range(8)]
            eventually(lambda: [client.predict(picture) for picture in noise] and _failed(service.url) == 1.0)
            assert client.predict(STRANGE).verdict == "reject"
            eventually(lambda: any("review queue is off" in line for line in service.lines))
            assert client.review(limit=1).num_items >= 0  # what is there can still be looked at
    finally:
        subprocess.run(["umount", disk], check=True)


def _large_and_strange(seed):
    import numpy as np

    return encode(np.random.default_rng(seed).integers(0, 256, (200, 200, 3), dtype=np.uint8))  # about 120 kB


def _failed(url):
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        if line.startswith("portcullis_review_failed "):
            return float(line.split()[1])
    return None
