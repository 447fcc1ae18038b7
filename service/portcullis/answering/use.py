"""How many requests use a thing, and when the last of them has left it."""

import asyncio


class Use:
    """Counts the requests inside its `with` blocks."""

    def __init__(self) -> None:
        self._count = 0
        self.is_over = asyncio.Event()
        self.is_over.set()

    def __enter__(self) -> None:
        self._count += 1
        self.is_over.clear()

    def __exit__(self, *exception: object) -> None:
        self._count -= 1
        if self._count == 0:
            self.is_over.set()
