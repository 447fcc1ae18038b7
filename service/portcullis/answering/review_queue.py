"""The review queue: takes images offered by the routes and keeps them, behind the back of every request.

`offer` never waits: it puts an image into a bounded queue in memory, or drops and counts it. One thread a worker
writes. Whatever goes wrong there turns the queue off for a while and raises a metric; answers go on.
"""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from portcullis.answering.review_objects import ImageObjects
from portcullis.bundle.gate import Verdict
from portcullis.bundle.sources.opening import is_url
from portcullis.settings import Settings
from portcullis.store.database import Database
from portcullis.store.review_images import ImageFiles, ImageRows, Images
from portcullis.store.review_items import Bounds, ReviewStore
from portcullis.telemetry.instruments import Metrics

logger = logging.getLogger(__name__)

REVIEW_DIRECTORY = "review"
IMAGES_DIRECTORY = "images"
MAX_WAITING_ITEMS = 64
MAX_WAITING_BYTES = 32 * 1024 * 1024
MAX_WRITE_ITEMS = 16
REST = 4.0  # the writer rests four times as long as it worked: a flood of rejects costs a worker a fifth of a core
MAX_WAIT_REST_SECONDS = 1.0  # and as long as it waited for the store, up to this: a slow one must not keep it asleep
EXPIRE_SECONDS = 60.0
CLOSE_SECONDS = 2.0
FIRST_RETRY_SECONDS = 0.5
RETRY_SECONDS = 30.0  # after many faults in a row: soon enough for whoever has just freed the disk

Candidates = Callable[[], list[str]]
Offer = tuple[bytes, dict[str, Any]]


class NoReview:
    """The review queue when it is off."""

    store: ReviewStore | None = None

    def offer(self, payload: bytes, answer: dict[str, Any], candidates: Candidates = list) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to finish."""


class ReviewQueue(NoReview):
    """Keeps rejected images and a sample of accepted ones."""

    def __init__(
        self,
        store: ReviewStore,
        accept_sample: float,
        max_payload_bytes: int,
        metrics: Metrics,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.store: ReviewStore = store
        self._accept_sample, self._max_payload_bytes, self._chance = accept_sample, max_payload_bytes, chance
        self._failed = metrics.review_failed
        self._kept, self._repeated, self._dropped, self._lost = (
            metrics.review_items.labels(result) for result in ("kept", "repeated", "dropped", "failed")
        )
        self._waiting: deque[Offer] = deque()
        self._waiting_bytes = 0
        self._wake = threading.Condition()
        self._closing = threading.Event()
        self._is_on, self._has_failed, self._num_faults = True, False, 0
        self._failed.set(0)
        self._thread = threading.Thread(target=self._work, name="review", daemon=True)
        self._thread.start()

    def offer(self, payload: bytes, answer: dict[str, Any], candidates: Candidates = list) -> None:
        """Take an image if it is wanted and there is room; returns at once in any case.

        `candidates` are asked for only then: the labels that a person should look at first.
        """
        is_sampled = self._chance() < self._accept_sample  # drawn whatever the verdict: an honest sample of all images
        if not self._is_on or not (is_sampled or answer["verdict"] == Verdict.REJECT):
            return
        with self._wake:
            room = MAX_WAITING_BYTES - self._waiting_bytes
            if len(self._waiting) < MAX_WAITING_ITEMS and len(payload) <= min(room, self._max_payload_bytes):
                self._waiting.append((payload, answer | {"candidates": candidates(), "is_sampled": is_sampled}))
                self._waiting_bytes += len(payload)
                self._wake.notify()
                return
        self._dropped.inc()

    def close(self) -> None:
        """Write what waits, within a moment."""
        self._closing.set()
        with self._wake:
            self._wake.notify()
        self._thread.join(CLOSE_SECONDS)

    # -- the writer's thread -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        is_over = False
        while not is_over:
            try:
                self._write_what_comes()
                is_over = True
            except Exception as error:  # a full disk, a broken database: never the answers
                self._turn_off(error)
                is_over = self._closing.wait(self._pause())

    def _pause(self) -> float:
        """Soon at first, as a connection that failed once may do at the next try; by chance, as a fleet must not come
        back all at once."""
        self._num_faults += 1
        return random.uniform(0.5, 1) * min(RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(self._num_faults - 1, 10))

    def _write_what_comes(self) -> None:
        self.store.prepare()
        self._is_on = True
        while not self._closing.is_set() or self._waiting:
            offers = self._take()
            started, worked = time.monotonic(), time.thread_time()
            self._write(offers)
            self._num_faults = 0
            self._closing.wait(_rest(time.monotonic() - started, time.thread_time() - worked))

    def _take(self) -> list[Offer]:
        """What waits; nothing after a minute in which nothing came, so that what is too old goes all the same."""
        with self._wake:
            if not self._waiting and not self._closing.is_set():
                self._wake.wait(EXPIRE_SECONDS)
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_WRITE_ITEMS))]
            self._waiting_bytes -= sum(len(payload) for payload, _ in taken)
        return taken

    def _write(self, offers: list[Offer]) -> None:
        try:
            num_new = self.store.add(offers)
        except Exception:
            self._lost.inc(len(offers))
            raise
        self._kept.inc(num_new)
        self._repeated.inc(len(offers) - num_new)
        if self._has_failed and num_new:  # nothing less proves that images can be kept again
            self._has_failed = False
            self._failed.set(0)
            logger.info("the review queue is on again")

    def _turn_off(self, error: Exception) -> None:
        self._is_on = False
        if not self._has_failed:  # say it once, however often it is tried again
            self._has_failed = True
            self._failed.set(1)
            logger.error("the review queue is off until its store works: %s: %s", type(error).__name__, error)
        with self._wake:
            self._waiting.clear()
            self._waiting_bytes = 0


def _rest(seconds: float, processor_seconds: float) -> float:
    """After a write that took so long, of which the processor was used for so long."""
    return max(REST * processor_seconds, min(seconds, MAX_WAIT_REST_SECONDS))


def review_of(settings: Settings, database: Database, metrics: Metrics) -> NoReview:
    """The review queue that the settings ask for, in the database that its instances share."""
    if not settings.review_enabled:
        return NoReview()
    bounds = Bounds(settings.review_max_items, settings.review_max_bytes, settings.review_max_age_seconds)
    store = ReviewStore(database, _images_of(settings), bounds)
    return ReviewQueue(store, settings.review_accept_sample, settings.review_max_bytes, metrics)


def _images_of(settings: Settings) -> Images:
    place = settings.review_directory
    if place is not None and is_url(place):
        return ImageObjects(place)
    if place is None and settings.database is not None:
        return ImageRows()
    directory = settings.runtime_directory / REVIEW_DIRECTORY if place is None else Path(place)
    return ImageFiles(directory / IMAGES_DIRECTORY)
