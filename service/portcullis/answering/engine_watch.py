"""Whether an engine still works: looks on from the event loop, and has it try the self-test where it is suspect.

Several failed batches in a row, or one that runs for too long, are a suspicion; a bad batch or a machine that stood
still may be to blame. The self-test decides, on a thread of its own, since the engine's may be lost for good.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

logger = logging.getLogger(__name__)

MAX_FAILED_BATCHES = 3
LOOK_SECONDS = 0.5


class Progress(NamedTuple):
    """How the batches of an engine go."""

    num_failed: int
    """Batches in a row that failed, up to now."""
    running_since: float | None


class EngineWatch:
    """Calls `on_broken` with the cause, once."""

    def __init__(
        self,
        progress: Callable[[], Progress],
        self_test: Callable[[], None],
        patience_seconds: float,
        on_broken: Callable[[str], None],
    ) -> None:
        self._progress, self._self_test, self._patience = progress, self_test, patience_seconds
        self._on_broken = on_broken
        self._num_forgiven = 0
        self._excused: float | None = None
        """Start of the batch that ran for too long while the self-test passed."""
        self._excused_at = 0.0

    async def run(self) -> None:
        """Look every so often, until the engine is broken or this task is cancelled."""
        while (cause := await self.look()) is None:
            await asyncio.sleep(LOOK_SECONDS)
        self._on_broken(cause)

    async def look(self) -> str | None:
        """Why the engine is broken; None while it is not known to be."""
        progress = self._progress()
        self._num_forgiven = min(self._num_forgiven, progress.num_failed)
        if progress.num_failed - self._num_forgiven >= MAX_FAILED_BATCHES:
            self._num_forgiven = progress.num_failed
            failure = await self._try_self_test()
            return failure and f"{progress.num_failed} batches failed in a row, then the self-test: {failure}"
        if progress.running_since is not None:
            return await self._look_at_batch(progress.running_since)
        return None

    async def _look_at_batch(self, since: float) -> str | None:
        seconds = time.monotonic() - since
        if seconds <= self._patience:
            return None
        if since != self._excused:
            failure = await self._try_self_test()
            self._excused, self._excused_at = since, time.monotonic()
            return failure and f"a batch has been running for {seconds:.0f} s, and the self-test: {failure}"
        if time.monotonic() - self._excused_at <= self._patience:
            return None
        return f"a batch hangs: it has been running for {seconds:.0f} s, although the self-test passes"

    async def _try_self_test(self) -> str | None:
        """What came of it, if it did not pass."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[str | None] = loop.create_future()

        def settle(failure: str | None) -> None:
            if not outcome.done():
                outcome.set_result(failure)

        def test() -> None:
            failure = None
            try:
                self._self_test()
            except Exception as error:
                logger.exception("the self-test of a suspect engine failed")
                failure = str(error) or type(error).__name__
            with contextlib.suppress(RuntimeError):  # the event loop has closed
                loop.call_soon_threadsafe(settle, failure)

        threading.Thread(target=test, name="self-test", daemon=True).start()
        try:
            return await asyncio.wait_for(outcome, self._patience)
        except TimeoutError:
            return f"no answer within {self._patience:g} s"
