"""Whether one more item may join a queue. Pure: told who stands in line, what was served and what time it is.

A queue that is long because many clients wait for their answers is served in turn and refuses nobody. A queue that is
long because more is offered than can be served would only make everybody wait: then only as much is admitted as will
be answered soon, or as makes the next batch worth running (batch_time.py). What tells the two apart is the excess: the
offers that were not served, less those that the engine has had time for since. A queue without an end would be as long,
on an engine of any speed; and it would be worked off after a flood, so that its end is noticed too.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from portcullis.answering.batch_time import BatchTime

MAX_EXCESS = 2  # in queue capacities: a long flood is forgotten as soon as a short one
LEAST_WAITING = 3  # with fewer the engine often stands still: they are begun before others come, who were refused


@dataclass(frozen=True)
class Limits:
    """How much may run and wait."""

    max_batch: int
    queue_capacity: int
    overload_wait_seconds: float


class Line(NamedTuple):
    """Who stands before the engine at one moment."""

    num_waiting: int
    num_running: int = 0
    running_since: float = 0.0


class PoolLine(NamedTuple):
    """Who stands before the threads that prepare large items, at one moment."""

    num_ahead: int
    num_threads: int
    seconds_each: float

    @property
    def wait_seconds(self) -> float:
        """Until a thread is free for one more."""
        return max(0, self.num_ahead - self.num_threads + 1) / self.num_threads * self.seconds_each

    @property
    def is_hungry(self) -> bool:
        """Whether a thread would soon have nothing to do."""
        return self.num_ahead < 2 * self.num_threads


class Admission:
    """Counts offers against what is served."""

    def __init__(self, limits: Limits, now: float, num_sharing: int = 1) -> None:
        self._limits, self._num_sharing = limits, num_sharing
        self._flood = limits.queue_capacity / num_sharing
        """Excess that makes a flood; of offers that come in so many places each sees its part."""
        self._time = BatchTime()
        self._least_waiting = LEAST_WAITING
        """So many make the next batch worth running, however long they wait."""
        self._excess, self._at = 0.0, now
        self._forgotten = 0.0
        """Of the excess, what the engine had time for since it last served somebody."""

    @property
    def is_flooded(self) -> bool:
        """Whether more was offered than served of late; while not, nothing is hopeless, whoever stands in line."""
        return self._excess > self._flood

    def offer(self, line: Line, now: float, pool: PoolLine | None = None, deadline: float = math.inf) -> bool:
        """Count one offer; whether it may join those that wait. `pool` is given for one that must be prepared there."""
        self._forget(line, now)
        self._count()
        is_full = line.num_waiting >= self._limits.queue_capacity
        return not (is_full or self._is_too_long(line, pool, now) or self._is_too_late(line, pool, now, deadline))

    def is_hopeless(self, line: Line, now: float, pool: PoolLine | None = None) -> bool:
        """Whether an offer is refused because of a flood, before any work is done for it; if so it is counted."""
        self._forget(line, now)
        if not self._is_too_long(line, pool, now):
            return False
        self._count()
        return True

    def served(self, num_items: int, num_run: int, seconds: float, work_seconds: float | None = None) -> None:
        """What was served is no excess; how long those that ran took tells how long others will wait."""
        self._excess = max(0.0, self._excess - max(0.0, num_items - self._forgotten))
        self._forgotten = 0.0
        if num_run:
            self._time.learn(num_run, seconds, work_seconds)
            self._least_waiting = max(LEAST_WAITING, self._time.least_worthwhile(self._limits.max_batch))

    def _is_too_long(self, line: Line, pool: PoolLine | None, now: float) -> bool:
        """In a flood: whether one more would neither be answered soon nor keep the engine, or a thread, from idling."""
        if not self.is_flooded:
            return False
        limit, wait = self._limits.overload_wait_seconds, self._wait(line, now)
        if wait > limit and line.num_waiting >= self._least_waiting:
            return True
        return pool is not None and not pool.is_hungry and pool.wait_seconds > max(limit, wait)

    def _is_too_late(self, line: Line, pool: PoolLine | None, now: float, deadline: float) -> bool:
        """Whether its turn would come after its deadline."""
        wait = max(self._wait(line, now), pool.wait_seconds if pool is not None else 0.0)
        return wait > 0 and now + wait > deadline

    def _wait(self, line: Line, now: float) -> float:
        """Seconds until everybody ahead is done: the batch that runs, full ones behind it, and the rest."""
        running = max(0.0, self._time.seconds(line.num_running) - (now - line.running_since))
        num_full, rest = divmod(line.num_waiting, self._limits.max_batch)
        return running + num_full * self._time.seconds(self._limits.max_batch) + self._time.seconds(rest)

    def _count(self) -> None:
        self._excess = min(self._excess + 1, MAX_EXCESS * self._flood)

    def _forget(self, line: Line, now: float) -> None:
        """Take off the excess what an engine with so few before it had time for, had there been more."""
        full = self._time.seconds(self._limits.max_batch)
        if full and line.num_waiting < self._least_waiting:
            num_items = (now - self._at) / full * self._limits.max_batch / self._num_sharing
            forgotten = min(num_items, self._excess)
            self._excess -= forgotten
            self._forgotten += forgotten
        self._at = now
