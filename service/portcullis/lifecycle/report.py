"""Says how far this worker has come: the latest word only, one write at a time, off the event loop."""

import asyncio
from collections.abc import Callable

from portcullis.errors import DatabaseAway, StateNotWritten
from portcullis.store.followers import Followed


class Report:
    """Passes on what is said to `confirm`, which writes it."""

    def __init__(self, confirm: Callable[[Followed], None]) -> None:
        self._confirm = confirm
        self._latest: Followed | None = None
        self._written: Followed | None = None
        self._writing: asyncio.Task[None] | None = None

    def say(self, followed: Followed) -> None:
        """Have this written, unless something later is said before it is its turn."""
        self._latest = followed
        self.repeat_if_lost()

    def repeat_if_lost(self) -> None:
        """Write what is not written yet; on a full disk that takes more than one attempt."""
        if self._latest != self._written and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write())

    async def wait(self) -> None:
        """Until the latest word is written, or could not be."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        while self._latest is not None and self._latest != self._written:
            latest = self._latest
            try:
                await asyncio.to_thread(self._confirm, latest)
            except (DatabaseAway, StateNotWritten):
                return
            self._written = latest
