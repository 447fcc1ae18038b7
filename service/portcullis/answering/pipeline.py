"""One image from bytes to answer: decode → batch → engine → gate → observe. READ FIRST.

A pipeline serves one version of one model. It knows no HTTP: `portcullis.api` reads requests and writes answers.
"""

import asyncio
import functools
import math
import time
from collections.abc import Callable

from portcullis.answering.observer import Observer
from portcullis.answering.prediction import FullRow, Prediction, top
from portcullis.answering.preparing import PreparingPool
from portcullis.answering.served_engine import ImageJob, Item, Load, ServedEngine, Work
from portcullis.answering.use import Use
from portcullis.bundle import shift
from portcullis.bundle.files import Bundle
from portcullis.bundle.gate import Gate, decide
from portcullis.bundle.manifest import Manifest
from portcullis.bundle.preprocess import Pixels, announced_pixels, decode
from portcullis.bundle.promises import Promises
from portcullis.drift.rings import RingWriter
from portcullis.telemetry.instruments import Metrics


class Pipeline:
    """Serves one bundle; `predict` is the path of a request."""

    def __init__(
        self,
        bundle: Bundle,
        engine: ServedEngine,
        load: Load,
        pool: PreparingPool,
        metrics: Metrics,
        ring: RingWriter,
        on_broken: Callable[[str], None] = lambda cause: None,
    ) -> None:
        self.bundle = bundle
        self.engine = engine
        self.manifest: Manifest = bundle.manifest
        self.promises = Promises(self.manifest)
        self._load = load
        self._use = Use()
        self.shadow: Callable[[Item, Prediction], None] | None = None
        """Offered each answer, with the image, while a candidate version is compared with this one."""
        self._observe = Observer(self.manifest, metrics, ring)
        self._on_broken = on_broken
        engine.begin(Work(self._prepare, self._is_large, load, pool, self._observe, self._break))
        self.refuse_if_flooded = functools.partial(engine.refuse_if_flooded, load.inline_decode_bytes == 0)
        """Raises Overloaded while far more is offered than can be served."""

    async def predict(
        self,
        payload: bytes,
        gate: Gate,
        top_k: int = 1,
        deadline: float = math.inf,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> Prediction:
        """Decode, run, decide. A rejected image is an answer, not an error."""
        started = time.monotonic()
        row, job = await self.engine.submit(payload, deadline, is_gone)
        prediction = self._decide(row, job, gate, top_k)
        self._record(payload, prediction, time.monotonic() - started)
        return prediction

    async def run_batch(
        self,
        images: list[Pixels],
        gate: Gate,
        deadline: float = math.inf,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> list[Prediction]:
        """Images that are decoded already, through the same queue as everybody's; all are answered or none."""
        started, room = time.monotonic(), self.room_of_one_call()

        async def submit(image: Pixels) -> tuple[FullRow, ImageJob]:
            async with room:
                return await self.engine.submit(image, deadline, is_gone)

        submitted = await asyncio.gather(*map(submit, images), return_exceptions=True)
        for outcome in submitted:
            if isinstance(outcome, BaseException):
                raise outcome
        answers = []
        for image, (row, job) in zip(images, submitted, strict=True):  # type: ignore[misc]
            prediction = self._decide(row, job, gate, 1)
            self._record(image, prediction, time.monotonic() - started)
            answers.append(prediction)
        return answers

    def room_of_one_call(self) -> asyncio.Semaphore:
        """For a call that brings many images: as many at once as the queue holds. More take turns with themselves."""
        return asyncio.Semaphore(self._load.limits.queue_capacity)

    def in_use(self) -> Use:
        """A request that has chosen this version gets its answer from it: `close` waits for the last of them."""
        return self._use

    async def close(self) -> None:
        """Answer what was promised and what is queued, then let go of the engine."""
        await self._use.is_over.wait()
        await self.engine.finish()
        await asyncio.to_thread(self.engine.close)

    def moved_share(self, gate: Gate) -> float:
        """By how much the gate rejects more or fewer familiar images here than where it was calibrated, at the most."""
        return shift.moved_share(gate, self.engine.shifts)

    def follow(self, gate: Gate) -> None:
        """The gate in force: the metrics and the evidence of drift are of the score that it compares."""
        self._observe.follow(gate)

    @property
    def max_batch(self) -> int:
        """Images that the engine is given at once, at the most."""
        return self._load.limits.max_batch

    @property
    def queue_depth(self) -> int:
        return self.engine.depth

    @property
    def absence(self) -> str | None:
        """Why nobody is answered just now, where that will change by itself."""
        return self.engine.absence

    def rows(self, images: list[Pixels]) -> list[FullRow]:
        """What the engine says of decoded images, past the queue; not from the event loop."""
        return self.engine.rows(images)

    def _break(self, cause: str) -> None:
        """The engine is broken: whoever replaces it is told why."""
        self._observe.broken()
        self._on_broken(f"the engine of {self.bundle.label} is broken: {cause}")

    # -- steps -------------------------------------------------------------------------------------------------------

    def _is_large(self, item: Item) -> bool:
        """Whether it is decoded by the pool: for its bytes, or for what it may become where that is a limit."""
        if not isinstance(item, bytes):
            return False
        if len(item) > self._load.inline_decode_bytes:
            return True
        most = self._load.inline_decode_pixels
        return most is not None and announced_pixels(item) > most

    def _prepare(self, item: Item) -> Pixels:
        return decode(item, self.manifest.image, self._load.max_pixels) if isinstance(item, bytes) else item

    def _decide(self, row: FullRow, job: ImageJob, gate: Gate, top_k: int) -> Prediction:
        verdict, reason = decide(row, gate)
        return Prediction(
            row=row,
            top=top(row, top_k),
            score=gate.score_of(row),
            p_value=gate.p_value(row),
            threshold=gate.threshold_for(row.class_index),
            gate=gate,
            verdict=verdict,
            reason=reason,
            decode_wait_seconds=job.prepare_wait_seconds,
            decode_seconds=job.prepare_seconds,
            queue_seconds=job.queue_seconds,
            inference_seconds=job.run_seconds,
        )

    def _record(self, image: Item, prediction: Prediction, total_seconds: float) -> None:
        self._observe.prediction(prediction, total_seconds)
        if self.shadow is not None:
            self.shadow(image, prediction)
