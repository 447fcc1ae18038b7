"""`/v1/predict` and `/v1/predict/batch`: bare ASGI inside FastAPI's routing, for speed."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from service import gate
from service.api.answers import error_body
from service.api.context import Context
from service.api.front import exchange_of
from service.api.requests import Receive, Scope, Send, integer, query, read_files, read_image, secret
from service.errors import Forbidden, InvalidParameter, ServiceError, Unavailable
from service.gate import Gate, Verdict
from service.pipeline import Pipeline, Prediction

PARAMETERS = frozenset({"model", "version", "top_k", "operating_point", "threshold", "on_reject"})
DEFAULT_TOP_K = 3
ON_REJECT = ("200", "422")


class Choice:
    """What a request asks for, read from its query."""

    __slots__ = ("gate", "on_reject", "pipeline", "top_k")

    def __init__(self, context: Context, scope: Scope) -> None:
        parameters = query(scope, PARAMETERS)
        version = integer(parameters, "version", 1, 999_999_999)
        self.pipeline, self.gate = context.registry.resolve(parameters.get("model"), version)
        num_labels = len(self.pipeline.manifest.labels)
        self.top_k = integer(parameters, "top_k", 1, num_labels) or min(DEFAULT_TOP_K, num_labels)
        self.on_reject = parameters.get("on_reject", "200")
        if self.on_reject not in ON_REJECT:
            raise InvalidParameter(f"on_reject must be one of {', '.join(ON_REJECT)}, got {self.on_reject[:40]!r}")
        if "operating_point" in parameters or "threshold" in parameters:
            self.gate = _own_gate(context, self.pipeline, parameters)


class PredictRoute:
    """One image in, one answer out."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = exchange_of(scope)
        try:
            choice = self._admit(scope)
            with choice.pipeline.in_use():
                payload = await read_image(scope, receive, self._context.settings.max_body_bytes)
                prediction = await choice.pipeline.predict(
                    payload, choice.gate, choice.top_k, _deadline(self._context), exchange.is_gone
                )
        except ServiceError as error:
            await exchange.refuse(error)
            return
        exchange.notes = lambda: _notes(choice.pipeline, prediction)
        status = int(choice.on_reject) if prediction.verdict is Verdict.REJECT else 200
        answer = answer_of(choice.pipeline, prediction, exchange.request_id)
        await exchange.answer(status, answer, (b"server-timing", _server_timing(prediction)))
        self._context.review.offer(payload, answer)

    def flood(self) -> ServiceError | None:
        """Why a request that asks for nothing in particular would be refused now, whatever its body; None if not."""
        try:
            if self._context.is_ready():
                self._context.registry.resolve()[0].refuse_if_flooded()
        except ServiceError as error:
            return error
        return None

    def _admit(self, scope: Scope) -> Choice:
        if not self._context.access.is_open:
            self._context.access.check_predict(secret(scope))
        if not self._context.is_ready():
            raise Unavailable("the service is starting or stopping")
        choice = Choice(self._context, scope)
        choice.pipeline.refuse_if_flooded()
        return choice


class BatchRoute(PredictRoute):
    """Many files in one form; an answer or an error for each, in order."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = exchange_of(scope)
        settings = self._context.settings
        try:
            choice = self._admit(scope)
            with choice.pipeline.in_use():
                files = await read_files(scope, receive, settings.max_batch_bytes, settings.max_batch_files)
                predictions = await asyncio.gather(
                    *(self._predict(payload, choice, exchange.is_gone) for _, payload in files)
                )
        except ServiceError as error:
            await exchange.refuse(error)
            return
        results = [
            {"file": name, **self._entry(choice.pipeline, outcome, exchange.request_id)}
            for (name, _), outcome in zip(files, predictions, strict=True)
        ]
        exchange.notes = lambda: {"files": len(files)}
        await exchange.answer(200, {"results": results, "request_id": exchange.request_id})
        for (_, payload), entry in zip(files, results, strict=True):
            if entry["answer"] is not None:
                self._context.review.offer(payload, entry["answer"])

    async def _predict(self, payload: bytes, choice: Choice, is_gone: Callable[[], bool]) -> Prediction | ServiceError:
        """One bad file never fails its neighbours."""
        try:
            return await choice.pipeline.predict(payload, choice.gate, choice.top_k, _deadline(self._context), is_gone)
        except ServiceError as error:
            self._context.metrics.errors.labels(error.code).inc()
            return error

    @staticmethod
    def _entry(pipeline: Pipeline, outcome: Prediction | ServiceError, request_id: str) -> dict[str, Any]:
        if isinstance(outcome, ServiceError):
            return {"answer": None, **error_body(outcome, request_id)}
        return {"answer": answer_of(pipeline, outcome, request_id), "error": None}


def answer_of(pipeline: Pipeline, prediction: Prediction, request_id: str) -> dict[str, Any]:
    """The JSON of one answer (service.api.schemas.Answer)."""
    manifest = pipeline.manifest
    labels = manifest.labels
    return {
        "model": manifest.name,
        "version": manifest.version,
        "label": labels[prediction.class_index],
        "class_index": prediction.class_index,
        "probability": prediction.probability,
        "top": [
            {"label": labels[index], "class_index": index, "probability": probability}
            for index, probability in prediction.top
        ],
        "score": prediction.score,
        "p_value": prediction.p_value,
        "threshold": prediction.gate.threshold,
        "operating_point": prediction.gate.operating_point,
        "verdict": prediction.verdict.value,
        "request_id": request_id,
    }


def _own_gate(context: Context, pipeline: Pipeline, parameters: dict[str, str]) -> Gate:
    if not context.settings.allow_request_gate:
        raise Forbidden("this service does not let a request choose its own gate")
    if "operating_point" in parameters and "threshold" in parameters:
        raise InvalidParameter("give operating_point or threshold, not both")
    if "threshold" in parameters:
        return Gate(gate.parse_threshold(parameters["threshold"]), None)
    return gate.choose_operating_point(parameters["operating_point"], pipeline.manifest)


def _deadline(context: Context) -> float:
    return time.monotonic() + context.settings.deadline_seconds


def _notes(pipeline: Pipeline, prediction: Prediction) -> dict[str, Any]:
    return {
        "model": pipeline.bundle.label,
        "verdict": prediction.verdict.value,
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
