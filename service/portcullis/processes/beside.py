"""What runs beside the workers in the supervisor, each on a thread of its own until it is told to stop."""

import threading
from collections.abc import Callable

STOP_SECONDS = 2.0

Run = Callable[[threading.Event], None]


class Beside:
    """Threads that are stopped one after the other, the last added first: it may tell what it has to those before."""

    def __init__(self) -> None:
        self._threads: list[tuple[threading.Thread, threading.Event]] = []

    def add(self, name: str, run: Run) -> None:
        stopping = threading.Event()
        self._threads.append((threading.Thread(target=run, args=(stopping,), name=name, daemon=True), stopping))

    def start(self) -> None:
        for thread, _ in self._threads:
            thread.start()

    def stop(self) -> None:
        """None is waited for longer than a moment."""
        for thread, stopping in reversed(self._threads):
            stopping.set()
            thread.join(STOP_SECONDS)
