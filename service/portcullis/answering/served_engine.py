"""What a pipeline sees of an engine, wherever it runs: inside this process, or in a process of its own on a device."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from portcullis.answering.admission import Limits
from portcullis.answering.job import Job
from portcullis.answering.observer import Observer
from portcullis.answering.prediction import FullRow
from portcullis.answering.preparing import PreparingPool
from portcullis.bundle.preprocess import Pixels
from portcullis.bundle.shift import Shifts

Item = bytes | Pixels
ImageJob = Job[Item, Pixels, FullRow]


@dataclass(frozen=True, slots=True)
class Load:
    """How a pipeline shares out the machine."""

    limits: Limits
    max_pixels: int
    inline_decode_bytes: int
    """Larger bodies, once admitted, are decoded by a pool: one large picture does not hold up its neighbours."""
    inline_decode_pixels: int | None = None
    """Likewise bodies that announce more pixels, or do not say; None where no limit is needed."""
    patience_seconds: float = 10.0
    """A batch that runs for longer, or a self-test, makes the engine suspect."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine's queue needs of its pipeline."""

    prepare: Callable[[Item], Pixels]
    is_large: Callable[[Item], bool]
    """Whether an item is prepared by the pool."""
    load: Load
    pool: PreparingPool
    observe: Observer
    on_broken: Callable[[str], None]
    """Told the cause, once, when the engine can be used no more."""


class ServedEngine(Protocol):
    """An open graph with a queue before it. `begin` comes first; then images are submitted from the event loop."""

    @property
    def asked(self) -> tuple[str, ...]: ...

    @property
    def providers(self) -> tuple[str, ...]: ...

    @property
    def refusals(self) -> tuple[str, ...]: ...

    @property
    def shifts(self) -> Shifts: ...

    @property
    def absence(self) -> str | None:
        """Why it answers nobody just now, where it will again."""

    @property
    def depth(self) -> int:
        """Images that wait, not counting those that run."""

    def begin(self, work: Work) -> None: ...

    def refuse_if_flooded(self, is_large: bool = False) -> None:
        """Raise Overloaded while a flood lasts, before its body is read: refusing must cost less than serving."""

    async def submit(
        self, item: Item, deadline: float = math.inf, is_gone: Callable[[], bool] = lambda: False
    ) -> tuple[FullRow, ImageJob]:
        """The row of one image. Raises Overloaded at once rather than let a backlog grow."""

    def rows(self, images: list[Pixels]) -> list[FullRow]:
        """What it says of decoded images, past the queue; keeps the calling thread, which is not the event loop's."""

    async def finish(self) -> None:
        """Answer what is queued; nothing more is admitted."""

    def close(self) -> None:
        """Let go of the graph, whether or not anything was begun; not on the event loop."""
