"""Says how far this worker has come: the latest word only, one write at a time, off the event loop."""

import asyncio
from collections.abc import Callable

from portcullis.errors import DatabaseAway, StateNotWritten
from portcullis.store.followers import Followed


class Report:
    """Passes on what is said to `confirm`, which writes it to a `place`; in another place it is written again."""

    def __init__(self, confirm: Callable[[Followed], None], place: Callable[[], object] = lambda: None) -> None:
        self._confirm, self._place = confirm, place
        self._latest: Followed | None = None
        self._written: tuple[Followed, object] | None = None
        self._writing: asyncio.Task[None] | None = None

    def say(self, followed: Followed) -> None:
        """Have this written, unless something later is said before it is its turn."""
        self._latest = followed
        self.repeat_if_lost()

    def repeat_if_lost(self) -> None:
        """Write what is not written yet, or was in a file that is gone; a full disk takes more than one attempt."""
        if self._is_lost() and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write())

    async def wait(self) -> None:
        """Until the latest word is written, or could not be."""
        if self._writing is not None:
            await self._writing

    def _is_lost(self) -> bool:
        return self._latest is not None and (self._latest, self._place()) != self._written

    async def _write(self) -> None:
        while self._latest is not None and self._is_lost():
            latest, place = self._latest, self._place()
            try:
                await asyncio.to_thread(self._confirm, latest)
            except (DatabaseAway, StateNotWritten):
                return
            self._written = latest, place
