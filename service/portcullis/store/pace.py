"""When an instance speaks to its fleet's database, and when it tries again: never all instances at the same moment."""

import random
import time

BEAT_SECONDS = 1.0
BEAT_SPREAD = 0.2
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 10.0


class Pace:
    """Draws every pause at random: a change, or a restart of the database, brings all instances into step otherwise."""

    def __init__(self) -> None:
        self._num_failures = 0
        self._next_beat = 0.0

    def is_due(self) -> bool:
        """Whether it is time for a word, whatever has happened."""
        return time.monotonic() >= self._next_beat

    def has_beaten(self) -> None:
        """The database has heard us."""
        self._num_failures = 0
        self._next_beat = time.monotonic() + self.seconds_to_beat()

    @staticmethod
    def seconds_to_beat() -> float:
        return BEAT_SECONDS * random.uniform(1 - BEAT_SPREAD, 1)

    def pause(self) -> float:
        """It does not answer: seconds until the next try, which grow with each; a word is due as soon as it does."""
        limit = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._num_failures, 10))
        self._num_failures += 1
        self._next_beat = 0.0
        return random.uniform(0, limit)
