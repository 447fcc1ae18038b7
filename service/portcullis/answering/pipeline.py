"""One image from bytes to answer: decode → batch → engine → gate → observe. READ FIRST.

A pipeline serves one version of one model. It knows no HTTP: `portcullis.api` reads requests and writes answers.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from portcullis.answering.admission import Limits
from portcullis.answering.batcher import Batcher
from portcullis.answering.engine_watch import EngineWatch
from portcullis.answering.job import Job
from portcullis.answering.observer import Observer
from portcullis.answering.prediction import FullRow, Prediction, top
from portcullis.answering.preparing import PreparingPool
from portcullis.answering.use import Use
from portcullis.bundle import shift
from portcullis.bundle.engine import Engine
from portcullis.bundle.files import Bundle
from portcullis.bundle.gate import Gate, decide
from portcullis.bundle.manifest import Manifest
from portcullis.bundle.preprocess import Pixels, decode
from portcullis.bundle.promises import Promises
from portcullis.drift.rings import RingWriter
from portcullis.telemetry.instruments import Metrics


@dataclass(frozen=True, slots=True)
class Load:
    """How a pipeline shares out the machine."""

    limits: Limits
    max_pixels: int
    inline_decode_bytes: int
    """Larger bodies, once admitted, are decoded by a pool: one large picture does not hold up the engine's thread."""
    patience_seconds: float = 10.0
    """A batch that runs for longer, or a self-test, makes the engine suspect."""


class Pipeline:
    """Serves one bundle; `predict` is the path of a request."""

    def __init__(
        self,
        bundle: Bundle,
        engine: Engine,
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
        self.shadow: Callable[[bytes | Pixels, Prediction], None] | None = None
        """Offered each answer, with the image, while a candidate version is compared with this one."""
        self._observe = Observer(self.manifest, metrics, ring)
        self._batcher: Batcher[bytes | Pixels, Pixels, FullRow] = Batcher(
            self._prepare, self.rows, load.limits, self._observe.batch, self._observe.drop, pool, self._is_large
        )
        self._on_broken, self._is_broken = on_broken, False
        watch = EngineWatch(self._batcher.progress, engine.self_test, load.patience_seconds, self._break)
        self._watching = asyncio.create_task(watch.run())

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
        row, job = await self._batcher.submit(payload, deadline, is_gone)
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

        async def submit(image: Pixels) -> tuple[FullRow, Job[bytes | Pixels, Pixels, FullRow]]:
            async with room:
                return await self._batcher.submit(image, deadline, is_gone)

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

    def refuse_if_flooded(self) -> None:
        """Raise Overloaded while far more is offered than can be served."""
        self._batcher.refuse_if_flooded(is_large=self._load.inline_decode_bytes == 0)

    def in_use(self) -> Use:
        """A request that has chosen this version gets its answer from it: `close` waits for the last of them."""
        return self._use

    async def close(self) -> None:
        """Answer what was promised and what is queued, then let go of the engine."""
        await self._use.is_over.wait()
        await self._batcher.close()
        self._watching.cancel()
        if not self._is_broken:  # who knows what it still does
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
        return self._batcher.depth

    def _break(self, cause: str) -> None:
        """The engine is broken: whoever waits is told so at once, and whoever replaces it why."""
        self._is_broken = True
        self._observe.broken()
        self._batcher.abandon()
        self._on_broken(f"the engine of {self.bundle.label} is broken: {cause}")

    # -- steps -------------------------------------------------------------------------------------------------------

    def _is_large(self, item: bytes | Pixels) -> bool:
        return isinstance(item, bytes) and len(item) > self._load.inline_decode_bytes

    def _prepare(self, item: bytes | Pixels) -> Pixels:
        return decode(item, self.manifest.image, self._load.max_pixels) if isinstance(item, bytes) else item

    def rows(self, images: list[Pixels]) -> list[FullRow]:
        """What the engine says of decoded images, at once and in this thread."""
        started = time.monotonic()
        outputs = self.engine.run(np.stack(images))
        self._observe.busy(time.monotonic() - started)
        best = outputs.probabilities.argmax(axis=1).tolist()
        scores, parts = outputs.scores.tolist(), outputs.parts.tolist()
        return [
            FullRow(index, float(row[index]), score, of_row, row)
            for row, index, score, of_row in zip(outputs.probabilities, best, scores, parts, strict=True)
        ]

    def _decide(self, row: FullRow, job: Job[bytes | Pixels, Pixels, FullRow], gate: Gate, top_k: int) -> Prediction:
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

    def _record(self, image: bytes | Pixels, prediction: Prediction, total_seconds: float) -> None:
        self._observe.prediction(prediction, total_seconds)
        if self.shadow is not None:
            self.shadow(image, prediction)
