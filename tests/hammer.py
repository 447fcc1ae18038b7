"""Constant load on a running service that checks every single answer: nothing wrong, nothing lost."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import numpy as np

from tests import tiny
from tests.service.pictures import encode

Outcome = TypeVar("Outcome")

POLL_SECONDS = 0.02
PATIENCE_SECONDS = 60.0  # only a failure takes that long; a busy machine may take seconds for anything
COLOURS = ((230, 20, 20), (20, 230, 20), (20, 20, 230), (128, 128, 128))
TOLERANCE = 1e-4


def eventually(condition: Callable[[], Outcome], seconds: float = PATIENCE_SECONDS) -> Outcome:
    """Wait until something comes true that another process brings about; what it then is."""
    end = time.monotonic() + seconds
    while not (outcome := condition()):
        assert time.monotonic() < end, f"it did not come true within {seconds} s"
        time.sleep(POLL_SECONDS)
    return outcome


class Hammer:
    """Threads that send known images for as long as the `with` block lasts.

    `sharpness` says for each version how its graph was made, so that every answer can be checked against NumPy.
    """

    def __init__(self, url: str, sharpness: dict[int, float], num_threads: int = 4, path: str = "/v1/predict") -> None:
        self._address, self._path = urlsplit(url).netloc, path
        self._images = [np.full((1, tiny.SIZE, tiny.SIZE, 3), colour, np.uint8) for colour in COLOURS]
        self._bodies = [encode(image[0]) for image in self._images]
        self._scores = {
            version: [float(tiny.answers(image, value)[1][0]) for image in self._images]
            for version, value in sharpness.items()
        }
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(num_threads)]
        self._lock = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.versions: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.lost = 0
        """Requests whose connection broke before the answer was whole."""
        self.refused = 0
        """Connections that could not be made."""
        self.seconds: list[float] = []

    def __enter__(self) -> "Hammer":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)

    @property
    def num_answers(self) -> int:
        return sum(self.statuses.values())

    def wait_for(self, num_answers: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Until so many more answers have come."""
        goal, end = self.num_answers + num_answers, time.monotonic() + seconds
        while self.num_answers < goal:
            assert time.monotonic() < end, f"no {num_answers} answers within {seconds} s: {self.statuses}"
            time.sleep(0.005)

    def _run(self, number: int) -> None:
        connection = None
        turn = number
        while not self._stopping.is_set():
            turn += 1
            if connection is None:
                connection = http.client.HTTPConnection(self._address, timeout=30)
                try:
                    connection.connect()
                except OSError:
                    self.refused += 1
                    connection = None
                    time.sleep(0.01)
                    continue
            if not self._ask(connection, turn % len(self._bodies)):
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _ask(self, connection: http.client.HTTPConnection, index: int) -> bool:
        started = time.monotonic()
        try:
            connection.request("POST", self._path, self._bodies[index], {"content-type": "image/png"})
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            with self._lock:
                self.lost += 1
            return False
        with self._lock:
            self.seconds.append(time.monotonic() - started)
            self.statuses[response.status] += 1
            if response.status == 200:
                self._check(json.loads(body), index)
        return not response.will_close

    def _check(self, answer: dict, index: int) -> None:
        self.versions[answer["version"]] += 1
        expected = self._scores[answer["version"]][index]
        if abs(answer["score"] - expected) > TOLERANCE * max(1, abs(expected)):
            self.wrong.append(f"version {answer['version']}: expected score {expected}, got {answer['score']}")
