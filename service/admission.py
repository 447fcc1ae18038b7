"""Whether one more item may join a queue. Pure: told what waits, what was served and what time it is.

A queue that is long because many clients wait for their answers is served in turn and refuses nobody. A queue that is
long because more is offered than can be served would only make everybody wait: then only as much is admitted as will
be answered soon. What tells the two apart is the excess, the offers that have not been served; it fades, so that the
end of a flood is noticed too.
"""

from dataclasses import dataclass

HALF_LIFE_SECONDS = 0.5
MAX_EXCESS = 4  # in queue capacities: a long flood is forgotten as soon as a short one
LEARNING_RATE = 0.2


@dataclass(frozen=True)
class Limits:
    """How much may run and wait."""

    max_batch: int
    queue_capacity: int
    overload_wait_seconds: float


class Admission:
    """Counts offers against what is served."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._capacity, self._overload_wait = limits.queue_capacity, limits.overload_wait_seconds
        self._seconds_per_item = 0.0
        self._excess, self._at = 0.0, now

    def offer(self, num_waiting: int, now: float) -> bool:
        """Count one offer; whether it may join those that wait."""
        self._fade(now)
        self._excess = min(self._excess + 1, MAX_EXCESS * self._capacity)
        return num_waiting < self._capacity and not self._is_too_long(num_waiting)

    def is_hopeless(self, num_waiting: int, now: float) -> bool:
        """Whether an offer would be refused now because of a flood; for a refusal before any work is done."""
        if not self._is_too_long(num_waiting):
            return False
        self._fade(now)
        return self._is_too_long(num_waiting)

    def served(self, num_items: int, seconds: float) -> None:
        """What was served is no excess; how long it took tells how long others will wait."""
        self._excess = max(0.0, self._excess - num_items)
        self._seconds_per_item += LEARNING_RATE * (seconds / num_items - self._seconds_per_item)

    def _is_too_long(self, num_waiting: int) -> bool:
        return self._excess > self._capacity and num_waiting * self._seconds_per_item > self._overload_wait

    def _fade(self, now: float) -> None:
        self._excess *= 0.5 ** ((now - self._at) / HALF_LIFE_SECONDS)
        self._at = now
