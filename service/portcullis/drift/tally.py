"""What an instance counts for its fleet: totals of one series, which begins with a version, or with another score."""

import secrets
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from portcullis.drift.evidence import Events


class Tally:
    """Counts of one model's images by event; of one thread."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.begin_anew()

    def begin_anew(self) -> None:
        """Count from nothing, under a name that no database has heard of."""
        self.series = secrets.token_hex(8)
        self.counts = np.zeros(1 + len(self._events.bounds), np.int64)
        self.is_new = True

    def go_on(self, series: str | None, counts: Sequence[int]) -> None:
        """As it was kept across a restart; what was never kept, or is of other events, begins anew."""
        if series is not None and len(counts) == len(self.counts):
            self.series, self.counts, self.is_new = series, np.array(counts, np.int64), False

    @property
    def num_images(self) -> int:
        return int(self.counts[0])

    @property
    def bounds(self) -> list[float]:
        bounds: list[float] = self._events.bounds.tolist()
        return bounds

    def take(self, p_values: NDArray[np.float32]) -> None:
        self.counts = self.counts + self._events.counts(p_values)


def watched(model: str, version: int, part: str | None, events: Events) -> str:
    """What evidence is of, wherever it is gathered: a version, the score that gates, the events that are counted."""
    return f"{model}/{version}/{part or ''}/{events.fingerprint[:16]}"
