"""Batches on a device, of what all fronts have sent. Two threads take turns: while one waits for the device the other
copies the next batch together, as late as the device allows, so that the batch is as large as can be.

Neither thread steps back in priority: they launch the kernels, and nothing here is dearer than a device that waits.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from portcullis.answering.device.board import Board
from portcullis.answering.device.graphs import EngineLane, Graph, Piece, count
from portcullis.answering.device.inbox import Inbox
from portcullis.answering.device.lane import FAILED, OK, OUT_OF_MEMORY
from portcullis.bundle.batches import NUM_IN_FLIGHT
from portcullis.bundle.outputs import Outputs
from portcullis.errors import DeviceLost, EngineError, OutOfDeviceMemory

logger = logging.getLogger(__name__)

LEAD_SECONDS = 0.002
"""How long before a batch is done the next one is made: time enough to copy it together."""
LEAD_SHARE = 0.05

Outcome = tuple[list[Piece], Outputs | EngineError]


class Serving:
    """The threads of one device."""

    def __init__(self, board: Board, on_gone: Callable[[EngineLane], None], on_lost: Callable[[str], None]) -> None:
        self._board, self._on_lost = board, on_lost
        self.inbox = Inbox(on_gone)
        self._gathering = threading.Lock()
        self._state = threading.Condition()
        self._running: dict[int, tuple[int, float, float]] = {}
        """For each thread: how many images run, since when, and how long that should take."""
        self._free_since = 0.0
        """When the last batch was done."""
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"engine-{number}", daemon=True)
            for number in range(NUM_IN_FLIGHT)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Run nothing more; what runs is finished."""
        self._is_closed = True
        self.inbox.wake()
        for thread in self._threads:
            thread.join()
        self.inbox.close()

    # -- one after the other -----------------------------------------------------------------------------------------

    def _work(self, number: int) -> None:
        while True:
            with self._gathering:
                taken = self._gather(number)
            if taken is None:
                self.inbox.wake()  # for the other one
                return
            graph, pieces, started = taken
            try:
                self._run(number, graph, pieces, started)
            except Exception:  # the thread must outlive any batch
                logger.exception("a batch of %d failed", count(pieces))
                if number in self._running:
                    self._end(number, graph, started)
                _deliver(pieces, EngineError("the batch failed"), 0, 0.0)

    def _gather(self, number: int) -> tuple[Graph, list[Piece], float] | None:
        """The next batch, once the device is about to be free; None at the end."""
        while not self._is_closed:
            self._wait_for_the_device()
            self.inbox.read(0)
            graph = self.inbox.oldest()
            if graph is not None and (pieces := graph.take()):
                return graph, pieces, self._begin(number, graph, count(pieces))
            self.inbox.read(None)
        return None

    def _wait_for_the_device(self) -> None:
        with self._state:
            while self._running and not self._is_closed:
                [(_, since, seconds)] = self._running.values()
                left = max(since, self._free_since) + seconds * (1 - LEAD_SHARE) - LEAD_SECONDS - time.monotonic()
                if left <= 0:
                    return
                self._state.wait(left)

    def _begin(self, number: int, graph: Graph, num_images: int) -> float:
        started = time.monotonic()
        graph.starts.append(started)
        with self._state:
            self._running[number] = num_images, started, graph.time.seconds(graph.run_size(num_images))
            self._say_running()
        return started

    def _end(self, number: int, graph: Graph, started: float) -> float:
        """How long the batch kept the device: not while it stood behind the one before."""
        ended = time.monotonic()
        graph.starts.remove(started)
        with self._state:
            del self._running[number]
            seconds = ended - max(started, self._free_since)
            self._free_since = ended
            self._say_running()
            self._state.notify_all()
        return seconds

    def _say_running(self) -> None:
        since = min((since for _, since, _ in self._running.values()), default=0.0)
        self._board.say_running(sum(num for num, _, _ in self._running.values()), max(since, self._free_since))

    # -- side by side ------------------------------------------------------------------------------------------------

    def _run(self, number: int, graph: Graph, pieces: list[Piece], started: float) -> None:
        outcomes = self._try(graph, pieces)
        seconds = self._end(number, graph, started)
        is_whole = len(outcomes) == 1 and isinstance(outcomes[0][1], Outputs)
        if is_whole:
            with self._state:
                graph.time.learn(graph.run_size(count(pieces)), seconds)
        graph.num_failed = 0 if any(isinstance(found, Outputs) for _, found in outcomes) else graph.num_failed + 1
        graph.busy(seconds)
        for part, found in outcomes:
            if isinstance(found, Outputs):
                graph.observe_batch(count(part))
            _deliver(part, found, graph.run_size(count(part)), seconds)

    def _try(self, graph: Graph, pieces: list[Piece], is_again: bool = False) -> list[Outcome]:
        """Run pieces as one batch; once more in parts, where the device has too little memory."""
        try:
            return [(pieces, graph.run(pieces))]
        except DeviceLost as error:
            graph.broken()
            self._on_lost(str(error))
            return [(pieces, error)]
        except OutOfDeviceMemory as error:
            num_images = count(pieces)
            if is_again or num_images == 1:
                return [(pieces, error)]
            graph.take_less(num_images)
            logger.warning("%s: %s; from now on %d at the most", graph.bundle.label, error, graph.max_batch)
            return [outcome for part in _parts(pieces, graph.max_batch) for outcome in self._try(graph, part, True)]
        except EngineError as error:
            logger.error("%s: %s", graph.bundle.label, error)
            return [(pieces, error)]


def _parts(pieces: list[Piece], most: int) -> list[list[Piece]]:
    """The same images in batches of so many at the most."""
    cut = [(lane, slots[at : at + most]) for lane, slots in pieces for at in range(0, len(slots), most)]
    parts, room = list[list[Piece]](), 0
    for lane, slots in cut:
        if len(slots) > room:
            parts.append([])
            room = most
        parts[-1].append((lane, slots))
        room -= len(slots)
    return parts


def _deliver(pieces: list[Piece], found: Outputs | EngineError, num_run: int, seconds: float) -> None:
    """Write the answers where the fronts read them, and say so; a front that has gone is noticed by the inbox."""
    start = 0
    status = OK if isinstance(found, Outputs) else OUT_OF_MEMORY if isinstance(found, OutOfDeviceMemory) else FAILED
    for lane, slots in pieces:
        rows = slice(start, start + len(slots))
        start += len(slots)
        if isinstance(found, Outputs):
            lane.slots.write_answers(slots, (found.probabilities[rows], found.scores[rows], found.parts[rows]))
        with contextlib.suppress(OSError):
            lane.answer(slots, status, num_run, seconds)
