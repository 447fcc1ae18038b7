"""One image from bytes to answer: decode → batch → engine → gate → observe. READ FIRST.

A pipeline serves one version of one model. It knows no HTTP: `service.api` reads requests and writes answers.
"""

import asyncio
import math
import operator
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from service import gate
from service.admission import Limits
from service.batcher import DROP_REASONS, Batcher, Job
from service.bundle import Bundle, Manifest
from service.engine import Engine
from service.gate import Gate, Verdict
from service.metrics import Metrics, observer
from service.preprocess import Pixels, decode
from service.rings import RingWriter, model_key

Top = tuple[tuple[int, float], ...]

FEW_LABELS = 64  # sorted faster as a list than as an array
_by_probability = operator.itemgetter(1)


@dataclass(frozen=True, slots=True)
class Load:
    """How a pipeline shares out the machine."""

    limits: Limits
    max_pixels: int
    inline_decode_bytes: int
    """Larger bodies are decoded by the pool, so that one large picture does not hold up the engine's thread."""


@dataclass(slots=True)
class Row:
    """What the engine says of one image, before the gate."""

    probabilities: "np.ndarray[tuple[int], np.dtype[np.float32]]"
    class_index: int
    probability: float
    score: float


@dataclass(slots=True)
class Prediction:
    """The answer for one image, with the times that it took."""

    class_index: int
    probability: float
    top: Top
    score: float
    p_value: float
    gate: Gate
    verdict: Verdict
    decode_seconds: float
    queue_seconds: float
    inference_seconds: float


class Pipeline:
    """Serves one bundle; `predict` is the path of a request."""

    def __init__(
        self, bundle: Bundle, engine: Engine, load: Load, pool: ThreadPoolExecutor, metrics: Metrics, ring: RingWriter
    ) -> None:
        self.bundle = bundle
        self.engine = engine
        self.manifest: Manifest = bundle.manifest
        self._load, self._pool, self._ring = load, pool, ring
        self._key = model_key(self.manifest.name, self.manifest.version)
        self._use = _Use()
        self.shadow: Callable[[bytes | Pixels, Prediction], None] | None = None
        """Offered each answer, with the image, while a candidate version is compared with this one."""
        self._observe = _Observer(self.manifest, metrics)
        self._batcher: Batcher[bytes | Pixels, Pixels, Row] = Batcher(
            self._prepare, self._run, load.limits, self._observe.batch, self._observe.drop
        )

    async def predict(
        self,
        payload: bytes,
        threshold: Gate,
        top_k: int = 1,
        deadline: float = math.inf,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> Prediction:
        """Decode, run, decide. A rejected image is an answer, not an error."""
        started = time.monotonic()
        item = payload if len(payload) <= self._load.inline_decode_bytes else await self._decode_in_pool(payload)
        decoded_in_pool = time.monotonic() - started if item is not payload else 0.0
        row, job = await self._batcher.submit(item, deadline, is_gone)
        prediction = self._decide(row, job, threshold, top_k, decoded_in_pool)
        self._record(payload, prediction, time.monotonic() - started)
        return prediction

    async def run_batch(
        self, images: list[Pixels], threshold: Gate, deadline: float = math.inf
    ) -> list[tuple[Row, Prediction]]:
        """Images that are decoded already, through the same queue as everybody's; all are answered or none."""
        started = time.monotonic()
        submitted = await asyncio.gather(
            *(self._batcher.submit(image, deadline) for image in images), return_exceptions=True
        )
        for outcome in submitted:
            if isinstance(outcome, BaseException):
                raise outcome
        answers = []
        for image, (row, job) in zip(images, submitted, strict=True):  # type: ignore[misc]
            prediction = self._decide(row, job, threshold, 1, 0.0)
            self._record(image, prediction, time.monotonic() - started)
            answers.append((row, prediction))
        return answers

    def refuse_if_flooded(self) -> None:
        """Raise Overloaded while far more is offered than can be served."""
        self._batcher.refuse_if_flooded()

    def in_use(self) -> "_Use":
        """A request that has chosen this version gets its answer from it: `close` waits for the last of them."""
        return self._use

    async def close(self) -> None:
        """Answer what was promised and what is queued, then let go of the engine."""
        await self._use.is_over.wait()
        await self._batcher.close()
        await asyncio.to_thread(self.engine.close)

    @property
    def queue_depth(self) -> int:
        return self._batcher.depth

    # -- steps -------------------------------------------------------------------------------------------------------

    async def _decode_in_pool(self, payload: bytes) -> Pixels:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, decode, payload, self.manifest.image, self._load.max_pixels)

    def _prepare(self, item: bytes | Pixels) -> Pixels:
        return decode(item, self.manifest.image, self._load.max_pixels) if isinstance(item, bytes) else item

    def _run(self, images: list[Pixels]) -> list[Row]:
        outputs = self.engine.run(np.stack(images))
        best = outputs.probabilities.argmax(axis=1).tolist()
        scores = outputs.scores.tolist()
        return [
            Row(row, index, float(row[index]), score)
            for row, index, score in zip(outputs.probabilities, best, scores, strict=True)
        ]

    def _decide(
        self, row: Row, job: Job[bytes | Pixels, Row], threshold: Gate, top_k: int, decoded_in_pool: float
    ) -> Prediction:
        return Prediction(
            class_index=row.class_index,
            probability=row.probability,
            top=_top(row, top_k),
            score=row.score,
            p_value=gate.p_value(row.score, self.manifest.calibration),
            gate=threshold,
            verdict=gate.decide(row.score, threshold.threshold),
            decode_seconds=job.prepare_seconds + decoded_in_pool,
            queue_seconds=job.queue_seconds,
            inference_seconds=job.run_seconds,
        )

    def _record(self, image: bytes | Pixels, prediction: Prediction, total_seconds: float) -> None:
        self._observe.prediction(prediction, total_seconds)
        self._ring.append(
            self._key,
            time.time(),
            prediction.score,
            prediction.p_value,
            prediction.class_index,
            prediction.verdict is Verdict.REJECT,
        )
        if self.shadow is not None:
            self.shadow(image, prediction)


class _Use:
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


class _Observer:
    """The instruments of one pipeline with their labels filled in once: a look-up costs more than an observation."""

    def __init__(self, manifest: Manifest, metrics: Metrics) -> None:
        model = (manifest.name, str(manifest.version))
        self._verdicts = {verdict: metrics.predictions.labels(*model, verdict.value) for verdict in Verdict}
        self._labels = [metrics.predicted_labels.labels(*model, label) for label in manifest.labels]
        self._p_value = observer(metrics.score_p_value.labels(*model))
        self._probability = observer(metrics.probability.labels(*model))
        self.batch = observer(metrics.batch_size.labels(*model))
        self._decode, self._queue, self._inference, self._total = (
            observer(metrics.stage_seconds.labels(stage)) for stage in ("decode", "queue", "inference", "total")
        )
        self._shed = {reason: metrics.shed.labels(reason) for reason in DROP_REASONS}

    def prediction(self, prediction: Prediction, total_seconds: float) -> None:
        self._verdicts[prediction.verdict].inc()
        self._labels[prediction.class_index].inc()
        self._p_value(prediction.p_value)
        self._probability(prediction.probability)
        self._decode(prediction.decode_seconds)
        self._queue(prediction.queue_seconds)
        self._inference(prediction.inference_seconds)
        self._total(total_seconds)

    def drop(self, reason: str) -> None:
        self._shed[reason].inc()


def _top(row: Row, top_k: int) -> Top:
    if top_k == 1:
        return ((row.class_index, row.probability),)
    if len(row.probabilities) > FEW_LABELS:
        order = np.argsort(-row.probabilities, kind="stable")[:top_k].tolist()
        return tuple((index, float(row.probabilities[index])) for index in order)
    probabilities = row.probabilities.tolist()
    ranked = sorted(enumerate(probabilities), key=_by_probability, reverse=True)  # stable: of equals, the first
    return tuple(ranked[:top_k])
