"""How long a worker that has ended waits for its successor. Pure: told how it ended and how long it was ready."""

SETTLED_SECONDS = 5.0
BROKEN_SETTLED_SECONDS = 300.0  # an engine that hangs is noticed late: shorter than that, it may have worked for nobody
FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 10.0


class Restarts:
    """After a life in which it was ready for long the next begins at once, after short ones later and later.

    What counts is the time since it was ready: a start that takes long is no life.
    """

    def __init__(self) -> None:
        self.num_short = 0
        """Short lives in a row."""

    def pause_seconds(self, ready_seconds: float | None, is_broken: bool = False) -> float:
        """The pause before the next life; `ready_seconds` is None where it never was ready."""
        settled = BROKEN_SETTLED_SECONDS if is_broken else SETTLED_SECONDS
        is_short = ready_seconds is None or ready_seconds < settled
        self.num_short = self.num_short + 1 if is_short else 0
        if self.num_short == 0:
            return 0.0
        return float(min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self.num_short - 1, 10)))
