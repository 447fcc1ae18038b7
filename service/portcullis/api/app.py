"""Puts the routes together into one ASGI application."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from portcullis import __version__
from portcullis.api.calibrate import CALIBRATE_PATH, calibrate_router
from portcullis.api.console.routes import console_router
from portcullis.api.context import Context
from portcullis.api.cors import Cors
from portcullis.api.documents import (
    ADMIN_ERRORS,
    CALIBRATE_ERRORS,
    READ_ERRORS,
    REVIEW_ERRORS,
    add_docs,
    describe,
    errors,
)
from portcullis.api.drift import drift_router
from portcullis.api.errors import error_body, error_headers
from portcullis.api.front import Front, exchange_of
from portcullis.api.health import health_router
from portcullis.api.models import model_changes_router, models_router
from portcullis.api.open_inference.refusals import refusal
from portcullis.api.open_inference.routes import INFER_PATH, PREFIX, open_inference_router
from portcullis.api.predict import BatchRoute, PredictRoute
from portcullis.api.predict_documents import BATCH, PREDICT, Described
from portcullis.api.reference import reference_router
from portcullis.api.requests import MAX_CONTROL_BYTES
from portcullis.api.review import review_router
from portcullis.errors import (
    BadRequest,
    ClientGone,
    MethodNotAllowed,
    NotFound,
    ServiceError,
    Unavailable,
)

DESCRIPTION = """An image-classification server that knows when not to answer.

Every answer carries a class, a calibrated probability, an out-of-distribution (OOD) score (higher is more familiar,
that is in-distribution), its conformal p-value and a verdict. A rejected image is a valid answer: 200 with
`"verdict": "reject"`."""


def build_app(context: Context) -> Front:
    """The application of one worker."""
    app = FastAPI(
        title="Portcullis",
        version=__version__,
        description=DESCRIPTION,
        openapi_url=None,  # this and the pages are ours (documents.py)
        docs_url=None,
        redoc_url=None,
    )
    _add_bare(app, "/v1/predict", PredictRoute(context), PREDICT)
    _add_bare(app, "/v1/predict/batch", BatchRoute(context), BATCH)
    app.include_router(models_router(context), responses=READ_ERRORS)
    app.include_router(drift_router(context), responses=READ_ERRORS)
    app.include_router(open_inference_router(context))
    app.include_router(model_changes_router(context), responses=ADMIN_ERRORS)
    app.include_router(calibrate_router(context), responses=CALIBRATE_ERRORS)
    app.include_router(reference_router(context), responses=READ_ERRORS)
    app.include_router(console_router())
    app.include_router(review_router(context), responses=REVIEW_ERRORS)
    app.include_router(health_router(context), responses=errors(Unavailable))
    add_docs(app)
    describe(app)
    _add_error_handlers(app)
    cors = Cors(context.settings.cors_origins) if context.settings.cors_origins else None
    return Front(app, context, _bare_routes(app), _body_limit(context), cors)


def _body_limit(context: Context) -> Callable[[str], int]:
    """Bytes that the body of a route may have, by its path; bare routes know their own."""
    max_images_bytes = context.settings.max_batch_bytes

    def limit(path: str) -> int:
        return max_images_bytes if INFER_PATH.match(path) or CALIBRATE_PATH.match(path) else MAX_CONTROL_BYTES

    return limit


class _BareRoute(APIRoute):
    """A route that FastAPI documents and matches, but whose request goes straight to an ASGI callable."""

    bare: Any = None

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] not in (self.methods or ()):
            raise MethodNotAllowed(f"expected {', '.join(sorted(self.methods or ()))}, got {scope['method'][:20]}")
        await self.bare(scope, receive, send)


def _bare_routes(app: FastAPI) -> dict[str, _BareRoute]:
    return {route.path: route for route in app.routes if isinstance(route, _BareRoute)}


def _add_bare(app: FastAPI, path: str, bare: Any, described: Described) -> None:
    async def never_called() -> None: ...

    route = _BareRoute(
        path,
        never_called,
        methods=["POST"],
        response_model=described.answer,
        summary=described.summary,
        description=described.description,
        tags=["predict"],
        responses=described.refusals,
        openapi_extra={"requestBody": described.body, "parameters": described.parameters},
        operation_id=described.operation_id,
    )
    route.bare = bare
    app.router.routes.append(route)


def _add_error_handlers(app: FastAPI) -> None:
    async def on_service_error(request: Request, error: Any) -> Response:
        return _error_answer(request, error)

    async def on_http_exception(request: Request, error: Any) -> Response:
        if isinstance(error.__cause__, ServiceError):  # raised while FastAPI read the body
            return _error_answer(request, error.__cause__)
        if isinstance(error.__cause__, ClientDisconnect):
            return _error_answer(request, ClientGone("the client hung up before its body was complete"))
        if error.status_code == 405:
            return _error_answer(request, MethodNotAllowed(f"{request.method[:20]} is not for this route"))
        if error.status_code == 404:
            return _error_answer(request, NotFound("no such route; /docs lists them all"))
        return _error_answer(request, BadRequest(str(error.detail)))

    async def on_validation_error(request: Request, error: Any) -> Response:
        kind = request.headers.get("content-type", "no content type").partition(";")[0].strip().lower()
        if any(e["loc"] == ("body",) for e in error.errors()) and kind != "application/json":
            return _error_answer(request, BadRequest(f"expected a body of application/json, got {kind[:80]}"))
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        return _error_answer(request, BadRequest(problems))

    app.add_exception_handler(ServiceError, on_service_error)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(RequestValidationError, on_validation_error)


def _error_answer(request: Request, error: ServiceError) -> Response:
    if f"{request.url.path}/".startswith(f"{PREFIX}/"):
        return refusal(request, error)
    exchange = exchange_of(request.scope)
    exchange.error_code = error.code
    headers = {name.decode(): value.decode() for name, value in error_headers(error)}
    return JSONResponse(error_body(error, exchange.request_id), int(error.status), headers)
