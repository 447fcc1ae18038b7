"""Ctrl-C as a request: the step under way is finished, so that what is saved is whole."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType

REPEAT_SECONDS = 2.0


class InterruptRequest:
    """Inside `with`, the first SIGINT or SIGTERM sets `is_set`; a later one interrupts at once.

    One Ctrl-C reaches a process under torchrun twice, from the terminal and from torchrun: that is still the first.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._first_seconds = 0.0
        self._previous: dict[int, signal.Handlers | int | None] = {}

    def __enter__(self) -> InterruptRequest:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)  # type: ignore[assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.is_set and now > self._first_seconds + REPEAT_SECONDS:
            raise KeyboardInterrupt
        if not self.is_set:
            self.is_set, self._first_seconds = True, now
