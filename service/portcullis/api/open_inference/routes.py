"""`/v2`: the Open Inference Protocol, as NVIDIA Triton, KServe and others speak it. Errors are `{"error": "…"}`.

Images go through the same queue as everybody's and are counted in the same metrics.
"""

import asyncio
import re
import time
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Path, Request, Response

from portcullis import __version__
from portcullis.answering.pipeline import Pipeline
from portcullis.answering.prediction import Prediction
from portcullis.api.context import Context
from portcullis.api.front import exchange_of
from portcullis.api.open_inference import tensors
from portcullis.api.open_inference.refusals import (
    INFER,
    READ,
    ProtocolRoute,
    refusals,
)
from portcullis.api.open_inference.repository import add_repository
from portcullis.api.open_inference.schemas import (
    INFER_BODY,
    InferResponse,
    ModelMetadata,
    ServerMetadata,
    TensorMetadata,
)
from portcullis.api.predict import mmles_of
from portcullis.api.requests import read_body, secret
from portcullis.bundle.manifest import Manifest
from portcullis.errors import (
    BadRequest,
    Forbidden,
    Unauthorized,
    Unavailable,
)

PREFIX = "/v2"
INFER_PATH = re.compile(rf"^{PREFIX}/models/[^/]+(/versions/[^/]+)?/infer$")
OUTPUTS = ("probabilities", "score", "mmles", "p_value", "verdict", "reason")
TEXTS = ("verdict", "reason")
Name = Annotated[str, Path(description="A model's name", examples=["pets"])]
Version = Annotated[int, Path(ge=1, le=999_999_999, description="A version", examples=[2])]


def open_inference_router(context: Context) -> APIRouter:
    """All of /v2; health needs no key, changes need an admin key."""
    router = APIRouter(prefix=PREFIX, tags=["open inference protocol"], route_class=ProtocolRoute)
    _add_health(router, context)
    _add_metadata(router, context)
    _add_infer(router, context)
    add_repository(router, context)
    return router


def _add_health(router: APIRouter, context: Context) -> None:
    @router.get("/health/live", summary="Whether the server lives", response_class=Response)
    async def live() -> Response:
        return Response()

    @router.get(
        "/health/ready",
        summary="Whether this worker can answer",
        response_class=Response,
        responses=refusals(Unavailable),
    )
    async def ready() -> Response:
        context.check_ready()
        return Response()


def _add_metadata(router: APIRouter, context: Context) -> None:
    def find(request: Request, name: str, version: int | None = None) -> Pipeline:
        context.access.check_predict(secret(request.scope))
        return context.registry.resolve(name, version)[0]

    @router.get("", summary="What this server is", responses=refusals(Unauthorized, Forbidden))
    async def server(request: Request) -> ServerMetadata:
        context.access.check_predict(secret(request.scope))
        return ServerMetadata(
            name="portcullis", version=__version__, extensions=["binary_tensor_data", "model_repository"]
        )

    @router.get("/models/{name}", summary="Inputs and outputs of a model", responses=READ)
    async def model(request: Request, name: Name) -> ModelMetadata:
        return _metadata(context, find(request, name).manifest)

    @router.get("/models/{name}/versions/{version}", summary="Inputs and outputs of a version", responses=READ)
    async def version(request: Request, name: Name, version: Version) -> ModelMetadata:
        return _metadata(context, find(request, name, version).manifest)

    @router.get("/models/{name}/ready", summary="Whether a model can answer", response_class=Response, responses=READ)
    async def model_ready(request: Request, name: Name) -> Response:
        find(request, name)
        return Response()

    @router.get(
        "/models/{name}/versions/{version}/ready",
        summary="Whether a version can answer",
        response_class=Response,
        responses=READ,
    )
    async def version_ready(request: Request, name: Name, version: Version) -> Response:
        find(request, name, version)
        return Response()


def _add_infer(router: APIRouter, context: Context) -> None:
    extra = {"requestBody": INFER_BODY}

    @router.post(
        "/models/{name}/infer",
        summary="Classify images given as a tensor",
        responses=INFER,
        response_model=InferResponse,
        openapi_extra=extra,
    )
    async def infer(request: Request, name: Name) -> Response:
        return await _infer(context, request, name, None)

    @router.post(
        "/models/{name}/versions/{version}/infer",
        summary="Classify images by one version",
        responses=INFER,
        response_model=InferResponse,
        openapi_extra=extra,
    )
    async def infer_version(request: Request, name: Name, version: Version) -> Response:
        return await _infer(context, request, name, version)


async def _infer(context: Context, request: Request, name: str, version: int | None) -> Response:
    context.access.check_predict(secret(request.scope))
    context.check_can_answer()
    exchange = exchange_of(request.scope)
    pipeline, gate = context.registry.resolve(name, version)
    with pipeline.in_use():
        settings, image = context.settings, pipeline.manifest.image
        if request.headers.get("content-encoding", "identity") != "identity":
            raise BadRequest("expected a body without content-encoding")
        body = await read_body(request.scope, request.receive, settings.max_batch_bytes)
        deadline = time.monotonic() + settings.deadline_seconds
        call = await asyncio.to_thread(
            tensors.read_call,
            body,
            request.headers.get(tensors.HEADER_LENGTH),
            (image.height, image.width, 3),
            settings.max_batch_files,
            OUTPUTS,
        )
        answers = await pipeline.run_batch(list(call.images), gate, deadline, exchange.is_gone)
    exchange.notes = lambda: {"model": pipeline.bundle.label, "images": len(answers)}
    return await asyncio.to_thread(_answer, pipeline.manifest, call, answers)


def _answer(manifest: Manifest, call: tensors.InferCall, answers: list[Prediction]) -> Response:
    mmles = [mmles_of(manifest, answer.row.parts) for answer in answers]
    results = {
        "probabilities": np.stack([answer.row.probabilities for answer in answers]),
        "score": np.array([answer.score for answer in answers], np.float32),
        "mmles": np.array([np.nan if value is None else value for value in mmles], np.float32),
        "p_value": np.array([answer.p_value for answer in answers], np.float32),
        "verdict": np.array([answer.verdict.value for answer in answers], np.object_),
        "reason": np.array([answer.reason.value if answer.reason else "" for answer in answers], np.object_),
    }
    head = {"model_name": manifest.name, "model_version": str(manifest.version)}
    if call.request_id is not None:
        head["id"] = call.request_id
    body, header_length = tensors.write_answer(head, results, call.outputs)
    if header_length is None:
        return Response(body, media_type="application/json")
    return Response(
        body, headers={"Inference-Header-Content-Length": str(header_length)}, media_type="application/octet-stream"
    )


def _metadata(context: Context, manifest: Manifest) -> ModelMetadata:
    image = manifest.image
    return ModelMetadata(
        name=manifest.name,
        versions=[str(version) for version in sorted(context.registry.find(manifest.name).pipelines)],
        platform="onnxruntime_onnx",
        inputs=[TensorMetadata(name="images", datatype="UINT8", shape=[-1, image.height, image.width, 3])],
        outputs=[
            TensorMetadata(
                name=name,
                datatype="BYTES" if name in TEXTS else "FP32",
                shape=[-1, len(manifest.labels)] if name == "probabilities" else [-1],
            )
            for name in OUTPUTS
        ],
    )
