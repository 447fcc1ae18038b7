"""Threads beside the engine's that prepare what is large, for all pipelines of a worker. Knows no images.

How many stand before them and how long each takes is known, so that whoever would wait too long is not admitted.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from portcullis.answering.admission import PoolLine

LEARNING_RATE = 0.2


class PreparingPool:
    """A pool that can tell how long it keeps one waiting."""

    def __init__(self, num_threads: int) -> None:
        self._pool = ThreadPoolExecutor(num_threads, "prepare")
        self._num_threads, self._num_ahead, self._seconds_each = num_threads, 0, 0.0
        self._lock = threading.Lock()

    def line(self) -> PoolLine:
        """Who stands before it now."""
        return PoolLine(self._num_ahead, self._num_threads, self._seconds_each)

    def submit(self, work: Callable[[], bool]) -> None:
        """Have something done, in turn; it tells whether it was, or had become needless."""
        with self._lock:
            self._num_ahead += 1
        self._pool.submit(self._do, work)

    def _do(self, work: Callable[[], bool]) -> None:
        started = time.monotonic()
        is_done = False
        try:
            is_done = work()
        finally:
            seconds = time.monotonic() - started
            with self._lock:
                self._num_ahead -= 1
                if is_done:
                    rate = LEARNING_RATE if self._seconds_each else 1.0
                    self._seconds_each += rate * (seconds - self._seconds_each)
