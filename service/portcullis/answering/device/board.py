"""How long the queue of a device is, for all its processes: one page that they map, each cell with one writer.

Clocks are CLOCK_MONOTONIC, which is the same in all processes of a machine.
"""

import mmap
import os

from portcullis.answering.admission import Line

_NUM_RUNNING, _SINCE, _FIRST_FRONT = 0, 1, 2
_CELL_BYTES = 8


def make(num_fronts: int) -> int:
    """A new board; its descriptor, for the processes to inherit."""
    descriptor = os.memfd_create("portcullis-board")
    os.ftruncate(descriptor, (_FIRST_FRONT + num_fronts) * _CELL_BYTES)
    return descriptor


class Board:
    """The page, as any of the processes sees it."""

    def __init__(self, descriptor: int) -> None:
        self._cells = memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size)).cast("d")
        self.num_fronts = len(self._cells) - _FIRST_FRONT

    def line(self) -> Line:
        """Who stands before the device now, whichever front they came through."""
        running = int(self._cells[_NUM_RUNNING])
        return Line(max(0, self.num_pending() - running), running, self._cells[_SINCE])

    def num_pending(self) -> int:
        """Images of all fronts that are admitted and not answered."""
        return int(sum(self._cells[_FIRST_FRONT:].tolist()))

    def say_pending(self, front: int, count: int) -> None:
        """Written by that front, and by the supervisor once it has died."""
        self._cells[_FIRST_FRONT + front] = count

    def say_running(self, count: int, since: float) -> None:
        """Written by the engine process."""
        self._cells[_SINCE], self._cells[_NUM_RUNNING] = since, count
