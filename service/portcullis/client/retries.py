"""How a call is carried through: when to send again, how long to wait. No connection and no clock of its own.

A conversation is a generator that yields what to do next, a `Call` to send or a `Pause` to make, and is sent what came
of it. The sync and the async client differ only in how they do these two things.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import httpx

from portcullis.client import calls
from portcullis.client.calls import Call, Choice
from portcullis.client.failures import from_response, from_transport, retry_after_seconds
from portcullis.errors import Overloaded, Unavailable
from portcullis.schemas.answers import BatchEntry

T = TypeVar("T")
Outcome = httpx.Response | httpx.TransportError | None
BUSY_CODES = (Overloaded.code, Unavailable.code)


@dataclass(frozen=True)
class Pause:
    """Wait before the next step."""

    seconds: float


Conversation = Generator[Call[Any] | Pause, Outcome, T]


@dataclass(frozen=True)
class Retries:
    """Exponential backoff with jitter, never sooner than the service asks for."""

    max_attempts: int = 5
    first_seconds: float = 0.1
    max_seconds: float = 5.0
    """The longest single wait of our own choice."""
    max_total_seconds: float = 30.0
    """All waits of one call together; a Retry-After beyond it ends the call at once."""
    random: Random = field(default_factory=Random, repr=False)

    def wait_seconds(self, attempt: int, waited: float, asked: float | None = None) -> float | None:
        """The wait after attempt 0, 1, …; none: give up."""
        if attempt + 1 >= self.max_attempts:
            return None
        backoff: float = min(self.max_seconds, self.first_seconds * 2**attempt)
        # Half of it is chance: clients that were turned away together must not come back together.
        wait = (asked or 0.0) + backoff * self.random.uniform(0.5, 1.0)
        return wait if waited + wait <= self.max_total_seconds else None


NO_RETRIES = Retries(max_attempts=1)


def converse(call: Call[T], retries: Retries) -> Conversation[T]:
    """Send a call until it is answered or there is no point in trying again."""
    waited = 0.0
    for attempt in range(retries.max_attempts):
        outcome = yield call
        assert outcome is not None
        if isinstance(outcome, httpx.Response) and outcome.is_success:
            return call.read(outcome)
        asked = retry_after_seconds(outcome) if isinstance(outcome, httpx.Response) else None
        wait = retries.wait_seconds(attempt, waited, asked) if _is_passing(call, outcome) else None
        if wait is None:
            raise from_response(outcome) if isinstance(outcome, httpx.Response) else from_transport(outcome)
        waited += wait
        yield Pause(wait)
    raise AssertionError("the last attempt either answers or raises")


def converse_batch(
    files: Sequence[tuple[str, bytes]], choice: Choice, max_files: int, max_bytes: int, retries: Retries
) -> Conversation[list[BatchEntry]]:
    """An entry for each file, in order, however many; those the service was too busy for are sent again."""
    entries: dict[int, BatchEntry] = {}
    open_indices, waited = list(range(len(files))), 0.0
    for attempt in range(retries.max_attempts):
        for part in split(open_indices, [len(content) for _, content in files], max_files, max_bytes):
            call = calls.predict_batch(tuple(files[index] for index in part), choice)
            answer = yield from converse(call, retries)
            entries |= dict(zip(part, answer.results, strict=True))
        open_indices = [index for index in open_indices if _is_busy(entries[index])]
        wait = retries.wait_seconds(attempt, waited, Overloaded.retry_after_seconds) if open_indices else None
        if wait is None:
            break
        waited += wait
        yield Pause(wait)
    return [entries[index] for index in range(len(files))]


def split(indices: Sequence[int], sizes: Sequence[int], max_files: int, max_bytes: int) -> list[list[int]]:
    """Parts of at most so many files and bytes; a file that is too large alone is a part of its own."""
    parts: list[list[int]] = []
    room = 0
    for index in indices:
        if not parts or len(parts[-1]) == max_files or sizes[index] > room:
            parts.append([])
            room = max_bytes
        parts[-1].append(index)
        room -= sizes[index]
    return parts


def _is_passing(call: Call[Any], outcome: httpx.Response | httpx.TransportError) -> bool:
    """Whether the same call may fare better in a moment."""
    if isinstance(outcome, httpx.Response):
        return outcome.status_code == httpx.codes.SERVICE_UNAVAILABLE
    if isinstance(outcome, httpx.ConnectError | httpx.ConnectTimeout):
        return True
    # The connection broke: a worker ended, or closed it while it idled. The request may have arrived.
    return call.can_repeat and isinstance(outcome, httpx.NetworkError | httpx.RemoteProtocolError)


def _is_busy(entry: BatchEntry) -> bool:
    return entry.error is not None and entry.error.code in BUSY_CODES
