"""An engine inside this process: its batches, its thread and its watch. The layout of a CPU."""

import asyncio
import time
from collections.abc import Callable

import numpy as np

from portcullis.answering.batcher import Batcher
from portcullis.answering.engine_watch import EngineWatch
from portcullis.answering.prediction import FullRow
from portcullis.answering.rows import rows_of
from portcullis.answering.served_engine import Item, Work
from portcullis.bundle.engine import Engine, start
from portcullis.bundle.files import Bundle
from portcullis.bundle.preprocess import Pixels
from portcullis.bundle.providers import EngineOptions


def opener(options: EngineOptions) -> Callable[[Bundle], "EngineHere"]:
    """How a bundle is opened in this process."""
    return lambda bundle: EngineHere(start(bundle, options))


class EngineHere:
    """Wraps an engine for one pipeline."""

    absence = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked, self.providers, self.refusals = engine.asked, engine.providers, engine.refusals
        self.shifts = engine.shifts
        self._is_broken = False

    def begin(self, work: Work) -> None:
        self._work, observe = work, work.observe
        self._batcher: Batcher[Item, Pixels, FullRow] = Batcher(
            work.prepare, self.rows, work.load.limits, observe.batch, observe.drop, work.pool, work.is_large
        )
        # the path of a request: as they are, with nothing in between
        self.submit, self.refuse_if_flooded = self._batcher.submit, self._batcher.refuse_if_flooded
        watch = EngineWatch(self._batcher.progress, self._engine.self_test, work.load.patience_seconds, self._break)
        self._watching = asyncio.create_task(watch.run())

    @property
    def depth(self) -> int:
        return self._batcher.depth

    def rows(self, images: list[Pixels]) -> list[FullRow]:
        started = time.monotonic()
        outputs = self._engine.run(np.stack(images))
        self._work.observe.busy(time.monotonic() - started)
        return rows_of(outputs.probabilities, outputs.scores, outputs.parts)

    async def finish(self) -> None:
        await self._batcher.close()
        self._watching.cancel()

    def close(self) -> None:
        if not self._is_broken:  # who knows what it still does
            self._engine.close()

    def _break(self, cause: str) -> None:
        """Whoever waits is told so at once, and whoever replaces it why."""
        self._is_broken = True
        self._batcher.abandon()
        self._work.on_broken(cause)
