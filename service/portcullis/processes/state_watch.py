"""Looks at the desired state on a thread of its own, many times a second; tells the event loop what is new to it."""

import asyncio
import logging
import threading
from collections.abc import Callable

from portcullis.store.state import DesiredState

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
REPEAT_LOOKS = 20


class StateWatch:
    """By revision: what could not be read or done at one look is still new at the next.

    Once a second the state is told in any case, so that whoever follows it can repeat what was lost.
    """

    def __init__(
        self,
        read: Callable[[], DesiredState | None],
        revision: Callable[[], int],
        tell: Callable[[DesiredState], None],
        seconds: float = LOOK_SECONDS,
    ) -> None:
        self._read, self._revision, self._tell, self._seconds = read, revision, tell, seconds
        self._loop = asyncio.get_running_loop()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="state", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Look no more; nothing is told from now on."""
        self._is_over.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        num_looks = 0
        while not self._is_over.wait(self._seconds):
            num_looks += 1
            try:
                state = self._read()
                if state is not None and (state.revision != self._revision() or num_looks % REPEAT_LOOKS == 0):
                    self._loop.call_soon_threadsafe(self._pass_on, state)
            except Exception:
                logger.exception("could not look at the desired state; trying again")

    def _pass_on(self, state: DesiredState) -> None:
        if self._is_over.is_set():
            return
        try:
            self._tell(state)
        except Exception:
            logger.exception("could not follow the desired state; trying again")
