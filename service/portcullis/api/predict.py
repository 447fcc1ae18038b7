"""`/v1/predict` and `/v1/predict/batch`: bare ASGI inside FastAPI's routing, for speed."""

import asyncio
import functools
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from portcullis.answering.pipeline import Pipeline
from portcullis.answering.prediction import Prediction, Top, prediction_set
from portcullis.api.context import Context
from portcullis.api.errors import error_body
from portcullis.api.front import exchange_of
from portcullis.api.requests import (
    Receive,
    Scope,
    Send,
    check_length,
    integer,
    query,
    read_files,
    read_image,
    secret,
)
from portcullis.bundle.gate import Gate, Verdict
from portcullis.bundle.grammar import parse_threshold
from portcullis.bundle.manifest import Manifest
from portcullis.errors import (
    ClientGone,
    Forbidden,
    InvalidParameter,
    ServiceError,
)

BATCH_PARAMETERS = frozenset({"model", "version", "top_k", "operating_point", "threshold", "explain", "set"})
PARAMETERS = BATCH_PARAMETERS | {"on_reject"}  # one status cannot speak for many files
DEFAULT_TOP_K = 3
ON_REJECT = ("200", "422")
EXPLAIN = {"true": True, "false": False}
MMLES = "mmles"
CANDIDATES_SHARE = "0.95"
"""How often the candidates that a reviewer sees first hold the truth."""
Predictor = Callable[[bytes], Awaitable[Prediction | ServiceError]]


class Asked:
    """What a request asks for, read from its query."""

    __slots__ = ("explain", "gate", "on_reject", "pipeline", "set_threshold", "top_k")

    def __init__(self, context: Context, scope: Scope, known: frozenset[str]) -> None:
        parameters = query(scope, known)
        version = integer(parameters, "version", 1, 999_999_999)
        self.pipeline, self.gate = context.registry.resolve(parameters.get("model"), version)
        num_labels = len(self.pipeline.manifest.labels)
        self.top_k = integer(parameters, "top_k", 1, num_labels) or min(DEFAULT_TOP_K, num_labels)
        self.on_reject = parameters.get("on_reject", "200")
        if self.on_reject not in ON_REJECT:
            raise InvalidParameter(f"on_reject must be one of {', '.join(ON_REJECT)}, got {self.on_reject[:40]!r}")
        explain = parameters.get("explain", "false")
        if explain not in EXPLAIN:
            raise InvalidParameter(f"explain must be true or false, got {explain[:40]!r}")
        self.explain = EXPLAIN[explain]
        self.set_threshold = self.pipeline.promises.set_threshold(parameters["set"]) if "set" in parameters else None
        if "operating_point" in parameters or "threshold" in parameters:
            self.gate = _own_gate(context, self.pipeline, parameters)


class PredictRoute:
    """One image in, one answer out."""

    parameters = PARAMETERS

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = exchange_of(scope)
        try:
            asked = self._admit(scope)
            with asked.pipeline.in_use():
                payload = await read_image(scope, receive, self._context.settings.max_body_bytes)
                prediction = await asked.pipeline.predict(
                    payload, asked.gate, asked.top_k, _deadline(self._context), exchange.is_gone
                )
        except ServiceError as error:
            await exchange.refuse(error)
            return
        exchange.notes = lambda: _notes(asked.pipeline, prediction)
        status = int(asked.on_reject) if prediction.verdict is Verdict.REJECT else 200
        answer = answer_of(asked, prediction, exchange.request_id)
        await exchange.answer(status, answer, (b"server-timing", _server_timing(prediction)))
        self._context.review.offer(payload, answer, lambda: candidates(asked.pipeline, prediction))

    def flood(self) -> ServiceError | None:
        """Why a request that asks for nothing in particular would be refused now, whatever its body; None if not."""
        try:
            if self._context.can_answer():
                self._context.registry.resolve()[0].refuse_if_flooded()
        except ServiceError as error:
            return error
        return None

    def _admit(self, scope: Scope) -> Asked:
        if not self._context.access.is_open:
            self._context.access.check_predict(secret(scope))
        self._context.check_can_answer()
        asked = Asked(self._context, scope, self.parameters)
        asked.pipeline.refuse_if_flooded()
        return asked


class BatchRoute(PredictRoute):
    """Many files in one form; an answer or an error for each, in order."""

    parameters = BATCH_PARAMETERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = exchange_of(scope)
        settings = self._context.settings
        try:
            asked = self._admit(scope)
            with asked.pipeline.in_use():
                files = await read_files(scope, receive, settings.max_batch_bytes, settings.max_batch_files)
                predict = self._predictor(asked, exchange.is_gone)
                predictions = await asyncio.gather(*(predict(payload) for _, payload in files))
            for outcome in predictions:
                if isinstance(outcome, ClientGone):  # nobody is there for the others either
                    raise outcome
        except ServiceError as error:
            await exchange.refuse(error)
            return
        results = [
            {"file": name, **self._entry(asked, outcome, exchange.request_id)}
            for (name, _), outcome in zip(files, predictions, strict=True)
        ]
        exchange.notes = lambda: {"files": len(files)}
        await exchange.answer(200, {"results": results, "request_id": exchange.request_id})
        for (_, payload), entry, outcome in zip(files, results, predictions, strict=True):
            if isinstance(outcome, Prediction):
                offered = functools.partial(candidates, asked.pipeline, outcome)
                self._context.review.offer(payload, entry["answer"], offered)

    def _predictor(self, asked: Asked, is_gone: Callable[[], bool]) -> Predictor:
        """Answers one file of a call; one bad file never fails its neighbours."""
        pipeline, deadline = asked.pipeline, _deadline(self._context)
        room = pipeline.room_of_one_call()

        async def predict(payload: bytes) -> Prediction | ServiceError:
            try:
                check_length(len(payload), self._context.settings.max_body_bytes)
                async with room:
                    return await pipeline.predict(payload, asked.gate, asked.top_k, deadline, is_gone)
            except ServiceError as error:
                self._context.metrics.errors.labels(error.code).inc()
                return error

        return predict

    @staticmethod
    def _entry(asked: Asked, outcome: Prediction | ServiceError, request_id: str) -> dict[str, Any]:
        if isinstance(outcome, ServiceError):
            return {"answer": None, **error_body(outcome, request_id)}
        return {"answer": answer_of(asked, outcome, request_id), "error": None}


def answer_of(asked: Asked, prediction: Prediction, request_id: str) -> dict[str, Any]:
    """The JSON of one answer (portcullis.schemas.answers.Answer)."""
    manifest, row, chosen = asked.pipeline.manifest, prediction.row, prediction.gate
    answer = {
        "model": manifest.name,
        "version": manifest.version,
        "label": manifest.labels[row.class_index],
        "class_index": row.class_index,
        "probability": row.probability,
        "top": _entries(manifest, prediction.top),
        "score": prediction.score,
        "score_name": chosen.score,
        "mmles": mmles_of(manifest, row.parts),
        "p_value": prediction.p_value,
        "threshold": prediction.threshold if prediction.threshold > -math.inf else None,
        "min_probability": chosen.min_probability,
        "operating_point": chosen.operating_point,
        "verdict": prediction.verdict.value,
        "reason": prediction.reason,
        "request_id": request_id,
    }
    if asked.explain:
        answer["parts"] = dict(zip(manifest.part_names, row.parts, strict=True))
    if asked.set_threshold is not None:
        answer["set"] = _entries(manifest, prediction_set(row, asked.set_threshold))
    return answer


def mmles_of(manifest: Manifest, parts: list[float]) -> float | None:
    """MMLES under its own name, whatever gates; none where the model was not trained for it."""
    return parts[manifest.part_names.index(MMLES)] if MMLES in manifest.part_names else None


def candidates(pipeline: Pipeline, prediction: Prediction) -> list[str]:
    """The labels that a reviewer sees first: the prediction set where the bundle can promise one, else the best."""
    try:
        found = prediction_set(prediction.row, pipeline.promises.set_threshold(CANDIDATES_SHARE))
    except ServiceError:
        found = prediction.top
    return [pipeline.manifest.labels[index] for index, _ in found]


def _entries(manifest: Manifest, classes: Top) -> list[dict[str, Any]]:
    labels = manifest.labels
    return [
        {"label": labels[index], "class_index": index, "probability": probability} for index, probability in classes
    ]


def _own_gate(context: Context, pipeline: Pipeline, parameters: dict[str, str]) -> Gate:
    if not context.settings.allow_request_gate:
        raise Forbidden("this service does not let a request choose its own gate")
    if "operating_point" in parameters and "threshold" in parameters:
        raise InvalidParameter("give operating_point or threshold, not both")
    if "threshold" in parameters:
        return pipeline.promises.gate(repr(parse_threshold(parameters["threshold"])))
    # a query writes a space as +, so accept95+right99 arrives with one where nobody wrote %2B; no gate has a space
    return pipeline.promises.gate(parameters["operating_point"].replace(" ", "+"))


def _deadline(context: Context) -> float:
    return time.monotonic() + context.settings.deadline_seconds


def _notes(pipeline: Pipeline, prediction: Prediction) -> dict[str, Any]:
    return {
        "model": pipeline.bundle.label,
        "verdict": prediction.verdict.value,
        "reason": prediction.reason,
        "p_value": round(prediction.p_value, 5),
        "decode_seconds": round(prediction.decode_seconds, 6),
        "queue_seconds": round(prediction.queue_seconds, 6),
        "inference_seconds": round(prediction.inference_seconds, 6),
    }


def _server_timing(prediction: Prediction) -> bytes:
    return b"decode;dur=%.3f, queue;dur=%.3f, inference;dur=%.3f" % (
        1000 * prediction.decode_seconds,
        1000 * prediction.queue_seconds,
        1000 * prediction.inference_seconds,
    )
