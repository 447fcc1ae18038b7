"""Opens the engines of versions beside what is served, each once, however many want it. Knows no names' wishes.

An engine may take minutes to build. Nothing waits for it but whoever asks to: gates change meanwhile, and other names
and versions come and go.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from portcullis.answering.served_engine import ServedEngine
from portcullis.bundle.files import Bundle
from portcullis.bundle.manifest import Manifest
from portcullis.bundle.sources.source import Source
from portcullis.errors import BundleError, ServiceError

logger = logging.getLogger(__name__)

NUM_THREADS = 4

Key = tuple[str, int]
Validated = tuple[Bundle, ServedEngine]
OpenEngine = Callable[[Bundle], ServedEngine]
"""Opens the engine of a bundle, in this process or another; keeps the calling thread."""


def validate(source: Source, key: Key, open_engine: OpenEngine) -> Validated:
    """Fetch, check and warm up a bundle; whatever is wrong with it is an error of ours, and nothing has changed."""
    bundle = source.load(*key)
    return bundle, open_engine(bundle)


class Opening:
    """Versions that are being opened, or are open and not yet taken."""

    def __init__(self, source: Source, open_engine: OpenEngine, on_end: Callable[[], None]) -> None:
        self._source, self._open_engine, self._on_end = source, open_engine, on_end
        self._pool = ThreadPoolExecutor(NUM_THREADS, "open")
        self._tasks: dict[Key, asyncio.Task[Validated]] = {}
        self._errors: dict[Key, BaseException] = {}
        """Why the last attempt failed, for as long as the next one takes."""
        self._claims: Counter[Key] = Counter()
        self._freeing: set[asyncio.Task[None]] = set()

    def find(self, key: Key) -> Manifest | None:
        """The manifest of a version whose engine is open; None while it is not. Begins to open it; raises why not."""
        task = self._tasks.get(key) or self._begin(key)
        if not task.done() and key in self._errors:
            raise self._errors[key]
        return task.result()[0].manifest if task.done() else None

    def take(self, key: Key) -> Validated:
        """An engine that was found; it is the caller's from now on."""
        return self._tasks.pop(key).result()

    @contextlib.asynccontextmanager
    async def checked(self, key: Key) -> AsyncIterator[Manifest]:
        """Open a version now, afresh if that failed before; its engine stays for whoever takes it in this block."""
        self.try_again()
        self._claims[key] += 1
        try:
            bundle, _ = await asyncio.shield(self._tasks.get(key) or self._begin(key))
            yield bundle.manifest
        finally:
            self._claims[key] -= 1

    def try_again(self) -> None:
        """Let what could not be opened be tried again, when it is next looked for."""
        self._tasks = {key: task for key, task in self._tasks.items() if not _has_failed(task)}

    def forget_failed(self) -> None:
        """Likewise, as if it had never failed."""
        self.try_again()
        self._errors.clear()

    def keep(self, wanted: Collection[Key]) -> None:
        """Let go of engines that are open and that nobody wants any more."""
        for key, task in list(self._tasks.items()):
            if task.done() and key not in wanted and not self._claims[key]:
                del self._tasks[key]
                if not _has_failed(task):
                    self._free(task.result()[1])

    async def wait(self) -> None:
        """Until nothing is being opened."""
        while under_way := [task for task in self._tasks.values() if not task.done()]:
            await asyncio.wait(under_way)

    async def close(self) -> None:
        """Let go of everything."""
        await self.wait()
        self._claims.clear()
        self.keep(())
        await asyncio.gather(*self._freeing)

    def _begin(self, key: Key) -> "asyncio.Task[Validated]":
        task = self._tasks[key] = asyncio.create_task(self._open(key))
        task.add_done_callback(lambda ended: self._end(key, ended))
        return task

    def _end(self, key: Key, task: "asyncio.Task[Validated]") -> None:
        self._errors.pop(key, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._errors[key] = error
        self._on_end()

    async def _open(self, key: Key) -> Validated:
        name, version = key
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, validate, self._source, key, self._open_engine)
        except ServiceError:
            raise
        except Exception as error:  # whatever a provider may do, it is this version's problem
            logger.exception("cannot open %s/%d", name, version)
            raise BundleError(f"bundle {name}/{version} cannot be opened: {type(error).__name__}") from error

    def _free(self, engine: ServedEngine) -> None:
        task = asyncio.create_task(asyncio.to_thread(engine.close))
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)


def _has_failed(task: "asyncio.Task[Validated]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
