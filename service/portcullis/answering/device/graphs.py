"""Bundles that are open on a device: each once, however many fronts have a lane to it, and no longer than one has."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portcullis.answering.batch_time import BatchTime
from portcullis.answering.device.lane import ANSWER, Slots, Stream
from portcullis.answering.engine_watch import EngineWatch, Progress
from portcullis.bundle.buckets import bucket_of
from portcullis.bundle.engine import Engine, start
from portcullis.bundle.files import Bundle
from portcullis.bundle.outputs import Outputs
from portcullis.bundle.providers import EngineOptions
from portcullis.bundle.signatures import Trust
from portcullis.telemetry.instruments import Metrics, observer


@dataclass(eq=False)
class EngineLane:
    """The engine's end of a lane."""

    stream: Stream
    slots: Slots
    graph: "Graph"
    is_gone: bool = False

    def answer(self, slots: NDArray[Any], status: int, num_run: int, seconds: float) -> None:
        """Say what came of slots; an OSError where the front has gone."""
        records = np.empty(len(slots), ANSWER)
        records["slot"], records["status"], records["num_run"], records["seconds"] = slots, status, num_run, seconds
        self.stream.send(records.tobytes())


Piece = tuple[EngineLane, NDArray[Any]]
"""Slots of one lane."""


class Graph:
    """One bundle: its engine, what waits for it, and how its batches go."""

    def __init__(self, bundle: Bundle, engine: Engine, max_batch: int, metrics: Metrics) -> None:
        self.bundle, self.engine = bundle, engine
        self.max_batch = min([max_batch, *engine.batch_sizes[-1:]])
        self.waiting: deque[tuple[float, EngineLane, NDArray[Any]]] = deque()
        """Since when, on which lane, which slots."""
        self.time = BatchTime()
        self.num_lanes = 0
        self.num_failed = 0
        """Batches in a row that failed, up to now."""
        self.starts: list[float] = []
        """Of the batches that run."""
        model = (bundle.manifest.name, str(bundle.manifest.version))
        self.observe_batch = observer(metrics.batch_size.labels(*model))
        self.busy = metrics.engine_busy_seconds.labels(*model).inc
        self.broken = metrics.broken_engines.labels(*model).inc
        self._count_out_of_memory = metrics.out_of_memory.labels(*model).inc
        self._say_max_batch = metrics.max_batch.set
        if self.max_batch < max_batch:
            self._say_max_batch(self.max_batch)
        self.watching: asyncio.Task[None] | None = None

    def progress(self) -> Progress:
        return Progress(self.num_failed, min(self.starts, default=None))

    def take(self) -> list[Piece]:
        """What waits, in turn, up to a batch."""
        pieces, room = list[Piece](), self._worthwhile(sum(len(slots) for _, _, slots in self.waiting))
        while self.waiting and room:
            since, lane, slots = self.waiting.popleft()
            if len(slots) > room:
                self.waiting.appendleft((since, lane, slots[room:]))
            pieces.append((lane, slots[:room]))
            room -= len(pieces[-1][1])
        return pieces

    def run_size(self, num_images: int) -> int:
        """What so many are rounded up to."""
        return bucket_of(num_images, self.engine.batch_sizes) if self.engine.batch_sizes else num_images

    def _worthwhile(self, num_waiting: int) -> int:
        """How many to run of those that wait: all, or fewer where rounding up costs more than it serves."""
        most = min(num_waiting, self.max_batch)
        fewer = max((size for size in self.engine.batch_sizes if size <= most), default=most)
        return fewer if fewer * self.time.seconds(self.run_size(most)) > most * self.time.seconds(fewer) else most

    def forget(self, lane: EngineLane) -> None:
        """Nobody waits for what this lane has sent."""
        self.waiting = deque(entry for entry in self.waiting if entry[1] is not lane)

    def run(self, pieces: list[Piece]) -> Outputs:
        """The answers for some pieces, in their order."""

        def fill(rows: NDArray[np.uint8]) -> None:
            start = 0
            for lane, slots in pieces:
                lane.slots.pixels.take(slots, axis=0, out=rows[start : start + len(slots)], mode="clip")
                start += len(slots)

        return self.engine.run_filled(count(pieces), fill)

    def take_less(self, num_images: int) -> None:
        """After a batch that did not fit: never so large a one again, and that is counted."""
        size = self.run_size(num_images)
        smaller = [each for each in self.engine.batch_sizes if each < size] or [num_images // 2]
        self.max_batch = max(1, min(self.max_batch, smaller[-1]))
        self._count_out_of_memory()
        self._say_max_batch(self.max_batch)


def count(pieces: list[Piece]) -> int:
    return sum(len(slots) for _, slots in pieces)


class Graphs:
    """Opens and closes; on the event loop of the engine process."""

    def __init__(self, options: EngineOptions, metrics: Metrics, patience_seconds: float, trust: Trust) -> None:
        self._options, self._metrics, self._patience, self._trust = options, metrics, patience_seconds, trust
        self._opening: dict[Path, asyncio.Task[Graph]] = {}
        self.on_broken: Callable[[str], None] = lambda cause: None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is open, or about to be."""
        return all(task.done() and task.exception() is not None for task in self._opening.values())

    async def open(self, path: Path) -> Graph:
        """A bundle that a lane is for; it stays open until `release` has been called as often."""
        if path not in self._opening or _has_failed(self._opening[path]):
            self._opening[path] = asyncio.create_task(asyncio.to_thread(self._start, path))
        graph = await asyncio.shield(self._opening[path])
        graph.num_lanes += 1
        if graph.watching is None:
            graph.watching = asyncio.create_task(self._watch(graph))
        return graph

    def release(self, graph: Graph) -> None:
        graph.num_lanes -= 1
        if graph.num_lanes == 0:
            self._opening = {path: task for path, task in self._opening.items() if not _is_of(task, graph)}
            if graph.watching is not None:
                graph.watching.cancel()
            asyncio.get_running_loop().run_in_executor(None, graph.engine.close)

    def _start(self, path: Path) -> Graph:
        bundle = self._trust.load(path)
        return Graph(bundle, start(bundle, self._options), self._options.max_batch, self._metrics)

    async def _watch(self, graph: Graph) -> None:
        def on_broken(cause: str) -> None:
            graph.broken()
            self.on_broken(f"the engine of {graph.bundle.label} is broken: {cause}")

        await EngineWatch(graph.progress, graph.engine.self_test, self._patience, on_broken).run()


def _has_failed(task: "asyncio.Task[Graph]") -> bool:
    return task.done() and task.exception() is not None


def _is_of(task: "asyncio.Task[Graph]", graph: Graph) -> bool:
    return task.done() and task.exception() is None and task.result() is graph
