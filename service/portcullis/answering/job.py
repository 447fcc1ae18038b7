"""One item on its way through the batcher: prepared on whichever thread has it, only while somebody waits for it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from portcullis.errors import ClientGone, DeadlineExceeded

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")
Row = TypeVar("Row")

DROP_REASONS = ("queue_full", "client_gone", "deadline")


@dataclass(slots=True, eq=False)
class Job(Generic[Item, Prepared, Row]):
    """An item, who waits for it, and the times that it took."""

    item: Item
    deadline: float
    is_gone: Callable[[], bool]
    future: "asyncio.Future[Row]"
    submitted: float
    prepared: Prepared | None = None
    prepare_wait_seconds: float = 0.0
    """Of the time in the queue, what passed until a thread beside the engine's took it; 0 where its own thread did."""
    prepare_seconds: float = 0.0
    queue_seconds: float = 0.0
    """Until its batch began, less the preparation if that came before."""
    run_seconds: float = 0.0

    def prepare(self, how: Callable[[Item], Prepared], on_drop: Callable[[str], None]) -> Exception | None:
        """Prepare the item, unless that is done or nobody waits for it; why it goes no further, if it does not."""
        started = time.monotonic()
        try:
            self._check_wanted(started, on_drop)
            if self.prepared is None:
                self.prepared = how(self.item)
                self.prepare_seconds = time.monotonic() - started
        except Exception as error:
            return error
        return None

    def _check_wanted(self, now: float, on_drop: Callable[[str], None]) -> None:
        if self.future.done() and not self.future.cancelled():
            raise DeadlineExceeded("no answer within the deadline")  # as was said, and counted, in time
        if self.future.done() or self.is_gone():
            on_drop("client_gone")
            raise ClientGone("the client hung up while the image waited")
        if now > self.deadline:
            on_drop("deadline")
            raise DeadlineExceeded("the deadline passed while the image waited")
