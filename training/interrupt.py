"""Ctrl-C as a request: the step under way is finished, so that what is saved is whole."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class InterruptRequest:
    """Inside `with`, the first SIGINT or SIGTERM sets `is_set`; a second one interrupts at once."""

    def __init__(self) -> None:
        self.is_set = False
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
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True
