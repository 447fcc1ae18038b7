"""What the fronts have sent: read from all lanes at once, when a batch can be made of it; until then left alone."""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable

import numpy as np

from portcullis.answering.device.graphs import EngineLane, Graph


class Inbox:
    """One thread at a time reads; lanes come from another."""

    def __init__(self, on_gone: Callable[[EngineLane], None]) -> None:
        self._on_gone = on_gone
        self._poll = select.epoll()
        self._wake = os.eventfd(0)
        self._poll.register(self._wake, select.EPOLLIN)
        self._lanes: dict[int, EngineLane] = {}
        self._lock = threading.Lock()

    def add(self, lane: EngineLane) -> None:
        with self._lock:
            self._lanes[lane.stream.fileno()] = lane
        self._poll.register(lane.stream.fileno(), select.EPOLLIN)

    def wake(self) -> None:
        """Let whoever waits in `read` look around."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Let go of all lanes; nobody reads any more."""
        self._poll.close()
        os.close(self._wake)
        for lane in self._lanes.values():
            lane.stream.close()

    def read(self, seconds: float | None) -> None:
        """Put what has come into the queues of its graphs; waits so long for something, or for ever."""
        for descriptor, _ in self._poll.poll(seconds):
            if descriptor == self._wake:
                os.eventfd_read(self._wake)
                continue
            self._read_lane(descriptor)

    def oldest(self) -> Graph | None:
        """The graph whose first image has waited longest."""
        with self._lock:
            waiting = [lane.graph for lane in self._lanes.values() if lane.graph.waiting]
        return min(waiting, key=lambda graph: graph.waiting[0][0], default=None)

    def _read_lane(self, descriptor: int) -> None:
        with self._lock:
            lane = self._lanes[descriptor]
        slots = lane.stream.receive()
        if slots is None or (len(slots) and int(slots.max()) >= len(lane.slots.pixels)):
            self._drop(descriptor, lane)
        elif len(slots):
            lane.graph.waiting.append((time.monotonic(), lane, slots.astype(np.intp)))

    def _drop(self, descriptor: int, lane: EngineLane) -> None:
        """A front has gone, or says nonsense: its images are nobody's any more."""
        self._poll.unregister(descriptor)
        with self._lock:
            del self._lanes[descriptor]
        lane.is_gone = True
        lane.graph.forget(lane)
        with contextlib.suppress(OSError):
            lane.stream.close()
        self._on_gone(lane)
