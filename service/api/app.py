"""Puts the routes together into one ASGI application."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from service import __version__
from service.api.answers import error_body, error_headers
from service.api.console import console_router
from service.api.context import Context
from service.api.documents import (
    ADMIN_ERRORS,
    BATCH_BODY,
    PREDICT_BODY,
    PREDICT_ERRORS,
    PREDICT_PARAMETERS,
    READ_ERRORS,
    REVIEW_ERRORS,
    add_docs,
    describe,
    errors,
)
from service.api.drift import drift_router
from service.api.front import Front, exchange_of
from service.api.health import health_router
from service.api.models import model_changes_router, models_router
from service.api.open_inference import PREFIX, open_inference_router
from service.api.predict import BatchRoute, PredictRoute
from service.api.protocol_errors import refusal
from service.api.reference import reference_router
from service.api.review import review_router
from service.api.schemas import Answer, BatchAnswer
from service.errors import BadRequest, MethodNotAllowed, NotFound, ServiceError, Unavailable

DESCRIPTION = """An image-classification server that knows when not to answer.

Every answer carries a class, a calibrated probability, a score (higher is more familiar), its conformal p-value and a
verdict. A rejected image is a valid answer: 200 with `"verdict": "reject"`."""


def build_app(context: Context) -> Front:
    """The application of one worker."""
    app = FastAPI(title="Portcullis", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None)
    _add_bare(app, "/v1/predict", PredictRoute(context), Answer, "Classify one image", PREDICT_BODY)
    _add_bare(app, "/v1/predict/batch", BatchRoute(context), BatchAnswer, "Classify many images", BATCH_BODY)
    app.include_router(models_router(context), responses=READ_ERRORS)
    app.include_router(drift_router(context), responses=READ_ERRORS)
    app.include_router(open_inference_router(context))
    app.include_router(model_changes_router(context), responses=ADMIN_ERRORS)
    app.include_router(reference_router(context), responses=READ_ERRORS)
    app.include_router(console_router())
    app.include_router(review_router(context), responses=REVIEW_ERRORS)
    app.include_router(health_router(context), responses=errors(Unavailable))
    add_docs(app)
    describe(app)
    _add_error_handlers(app)
    if context.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(context.settings.cors_origins), allow_methods=["*"], allow_headers=["*"]
        )
    return Front(app, context, {} if context.settings.cors_origins else _bare_routes(app))


class _BareRoute(APIRoute):
    """A route that FastAPI documents and matches, but whose request goes straight to an ASGI callable."""

    bare: Any = None

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] not in (self.methods or ()):
            raise MethodNotAllowed(f"expected {', '.join(sorted(self.methods or ()))}, got {scope['method'][:20]}")
        await self.bare(scope, receive, send)


def _bare_routes(app: FastAPI) -> dict[str, _BareRoute]:
    return {route.path: route for route in app.routes if isinstance(route, _BareRoute)}


def _add_bare(app: FastAPI, path: str, bare: Any, model: Any, summary: str, body: dict[str, Any]) -> None:
    async def documented() -> None:
        """Answered by a bare ASGI callable."""

    route = _BareRoute(
        path,
        documented,
        methods=["POST"],
        response_model=model,
        summary=summary,
        tags=["predict"],
        responses=PREDICT_ERRORS,
        openapi_extra={"requestBody": body, "parameters": PREDICT_PARAMETERS},
        operation_id=summary.lower().replace(" ", "_"),
    )
    route.bare = bare
    app.router.routes.append(route)


def _add_error_handlers(app: FastAPI) -> None:
    async def on_service_error(request: Request, error: Any) -> Response:
        return _error_answer(request, error)

    async def on_http_exception(request: Request, error: Any) -> Response:
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
    if request.url.path.startswith(f"{PREFIX}/"):
        return refusal(request, error)
    exchange = exchange_of(request.scope)
    exchange.error_code = error.code
    headers = {name.decode(): value.decode() for name, value in error_headers(error)}
    return JSONResponse(error_body(error, exchange.request_id), int(error.status), headers)
