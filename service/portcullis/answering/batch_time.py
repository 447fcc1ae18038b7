"""How long a batch takes: a fixed part and a part for each item, learned from batches that ran. Pure.

On a CPU nearly all is for the items, so small batches serve as many as large ones. On a GPU the fixed part is worth a
dozen images, and only large batches serve what the device can. The parts are learned on the clock that the engine works
by: on a CPU that of its thread, or a busy event loop on the same core would look like a fixed part; how much longer a
batch takes by the clock on the wall is learned apart.
"""

import math

MEMORY = 0.95  # what a batch counts for after one more: about the last twenty decide
STIFFNESS = 0.1  # of the mean size, squared: batches of one size say nothing of the parts, whose ratio then stays
MAX_SURPRISE = 4.0  # a machine that stood still during one batch has not become that slow
WORTH = 0.92
WHOLE_ITEMS = 4  # a fixed part of so many items makes it a device that wants full batches


class BatchTime:
    """Seconds for a batch of n: `stretch · (fixed + per_item · n)`, by least squares over recent batches."""

    def __init__(self) -> None:
        self.fixed = 0.0
        self.per_item = 0.0
        self.stretch = 1.0
        self._weight = self._items = self._work = self._items_squared = self._items_work = self._seconds = 0.0

    def seconds(self, num_items: int) -> float:
        """The time that a batch of so many takes; nothing for none, and while nothing is known."""
        return self.stretch * (self.fixed + self.per_item * num_items) if num_items else 0.0

    def learn(self, num_items: int, seconds: float, work_seconds: float | None = None) -> None:
        """Take in one batch; `work_seconds` by the engine's clock where that is another one."""
        work = seconds if work_seconds is None else work_seconds
        if self._weight:
            seconds = min(seconds, MAX_SURPRISE * self.seconds(num_items))
            work = min(work, MAX_SURPRISE * self.seconds(num_items) / self.stretch)
        new = 1 - MEMORY
        self._weight = MEMORY * self._weight + new
        self._items = MEMORY * self._items + new * num_items
        self._items_squared = MEMORY * self._items_squared + new * num_items * num_items
        self._work = MEMORY * self._work + new * work
        self._items_work = MEMORY * self._items_work + new * num_items * work
        self._seconds = MEMORY * self._seconds + new * seconds
        self._fit()

    def least_worthwhile(self, max_batch: int) -> int:
        """The smallest batch that serves nearly as many a second as the largest: beyond it there is only waiting."""
        largest = self.fixed + self.per_item * max_batch
        if not largest:
            return 1
        if self.fixed > WHOLE_ITEMS * self.per_item:
            return max_batch
        rate = WORTH * max_batch / largest
        return max(1, math.ceil(rate * self.fixed / (1 - rate * self.per_item) - 1e-9))

    def _fit(self) -> None:
        """The slope by least squares, drawn to the share that it had before; neither part is ever below nothing."""
        items, work = self._items / self._weight, self._work / self._weight
        variance = self._items_squared / self._weight - items**2
        covariance = self._items_work / self._weight - items * work
        stiffness = STIFFNESS * items**2
        expected = self.fixed + self.per_item * items
        before = self.per_item * work / expected if expected else 0.0
        slope = (covariance + stiffness * before) / (variance + stiffness)
        self.per_item = min(max(slope, 0.0), work / items)
        self.fixed = work - self.per_item * items
        self.stretch = self._seconds / self._work if self._work else 1.0
