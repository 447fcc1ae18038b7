"""How long a batch takes: a fixed part and a part for each item, learned from batches that ran. Pure.

On a CPU nearly all is for the items, so small batches serve as many as large ones. On a GPU the fixed part is worth a
dozen images, and only large batches serve what the device can.
"""

import math

MEMORY = 0.95  # what a batch counts for after one more: about the last twenty decide
STIFFNESS = 0.1  # of the mean size, squared: batches of one size say nothing of the slope, which then stays as it was
MAX_SURPRISE = 4.0  # a machine that stood still during one batch has not become that slow
WORTH = 0.98
WHOLE_SHARE = 0.1  # a fixed part of this much of a full batch makes it a device that wants full ones


class BatchTime:
    """Seconds for a batch of n: `fixed + per_item · n`, by least squares over recent batches."""

    def __init__(self) -> None:
        self.fixed = 0.0
        self.per_item = 0.0
        self._weight = self._items = self._seconds = self._items_squared = self._items_seconds = 0.0

    def seconds(self, num_items: int) -> float:
        """The time that a batch of so many takes; nothing for none, and while nothing is known."""
        return self.fixed + self.per_item * num_items if num_items else 0.0

    def learn(self, num_items: int, seconds: float) -> None:
        """Take in one batch."""
        if self._weight:
            seconds = min(seconds, MAX_SURPRISE * self.seconds(num_items))
        n, t = float(num_items), seconds
        new = (1.0, n, t, n * n, n * t)
        old = (self._weight, self._items, self._seconds, self._items_squared, self._items_seconds)
        self._weight, self._items, self._seconds, self._items_squared, self._items_seconds = (
            MEMORY * before + (1 - MEMORY) * now for before, now in zip(old, new, strict=True)
        )
        self._fit()

    def least_worthwhile(self, max_batch: int) -> int:
        """The smallest batch that serves nearly as many a second as the largest: beyond it there is only waiting."""
        largest = self.seconds(max_batch)
        if not largest:
            return 1
        if self.fixed > WHOLE_SHARE * largest:
            return max_batch
        rate = WORTH * max_batch / largest
        return max(1, math.ceil(rate * self.fixed / (1 - rate * self.per_item) - 1e-9))

    def _fit(self) -> None:
        """The slope by least squares, drawn to the one before; neither part is ever below nothing."""
        items, seconds = self._items / self._weight, self._seconds / self._weight
        variance = self._items_squared / self._weight - items**2
        covariance = self._items_seconds / self._weight - items * seconds
        stiffness = STIFFNESS * items**2
        slope = (covariance + stiffness * self.per_item) / (variance + stiffness)
        self.per_item = min(max(slope, 0.0), seconds / items)
        self.fixed = seconds - self.per_item * items
