"""The OpenAPI document and its page, and the refusals of each kind of route."""

import asyncio
import functools
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from swagger_ui_bundle import swagger_ui_path

from portcullis.errors import (
    BadRequest,
    BundleError,
    Conflict,
    Forbidden,
    InvalidParameter,
    PayloadTooLarge,
    ReviewFailure,
    ServiceError,
    StateNotWritten,
    Unauthorized,
    UnknownModel,
    UnknownReviewItem,
    UnknownVersion,
    UnsupportedMediaType,
)
from portcullis.schemas.answers import ErrorAnswer

ASSETS = "/docs/assets"
DOCUMENT = "/openapi.json"
DOCS_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'"
)


def add_docs(app: FastAPI) -> None:
    """Serve the page from files of our own: it works offline and calls no outside host."""
    app.mount(ASSETS, StaticFiles(directory=swagger_ui_path), name="docs-assets")
    router = APIRouter()

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        page = get_swagger_ui_html(
            openapi_url=DOCUMENT,
            title="Portcullis API",
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon-32x32.png",
        )
        page.headers["content-security-policy"] = DOCS_POLICY
        return page

    @functools.cache
    def document() -> bytes:
        return orjson.dumps(app.openapi())

    @router.get(DOCUMENT, include_in_schema=False)
    async def openapi() -> Response:
        return Response(await asyncio.to_thread(document), media_type="application/json")  # made at the first call

    app.include_router(router)


def describe(app: FastAPI) -> None:
    """Have the document made with what FastAPI cannot know of the bare routes."""

    def openapi() -> dict[str, Any]:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        document["security"] = [{}, {"bearer": []}, {"apiKey": []}]
        _drop_default_errors(document)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _drop_default_errors(document: dict[str, Any]) -> None:
    """FastAPI promises its own shape of a 422; ours is a 400 in the one shape."""
    for operations in document["paths"].values():
        for operation in operations.values():
            if "HTTPValidationError" in str(operation["responses"].get("422", "")):
                del operation["responses"]["422"]
    for schema in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(schema, None)


def errors(*kinds: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, by status, each with an example of its own code."""
    answers: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        entry = answers.setdefault(
            int(kind.status),
            {"model": ErrorAnswer, "description": "", "content": {"application/json": {"examples": {}}}},
        )
        summary = (kind.__doc__ or "").split("\n")[0]
        entry["description"] = f"{entry['description']} {summary}".strip()
        entry["content"]["application/json"]["examples"][kind.code] = {
            "value": {"error": {"code": kind.code, "message": summary, "request_id": "6f1d0c2b9a7e4f35"}}
        }
    return answers


def accepted(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The answer to a change that is written, and not yet followed by every worker."""
    text = "The change is made, but not every worker has followed within a few seconds: `behind` names them and why."
    return {int(HTTPStatus.ACCEPTED): {"model": model, "description": text}}


READ_ERRORS = errors(Unauthorized, Forbidden, UnknownModel)
ADMIN_ERRORS = errors(
    Unauthorized,
    Forbidden,
    UnknownModel,
    BadRequest,
    PayloadTooLarge,
    InvalidParameter,
    BundleError,
    Conflict,
    StateNotWritten,
)
CALIBRATE_ERRORS = errors(
    Unauthorized,
    Forbidden,
    UnknownModel,
    UnknownVersion,
    BadRequest,
    PayloadTooLarge,
    UnsupportedMediaType,
    InvalidParameter,
    BundleError,
    Conflict,
    StateNotWritten,
    ReviewFailure,
)
REVIEW_ERRORS = errors(
    Unauthorized, Forbidden, UnknownReviewItem, BadRequest, PayloadTooLarge, InvalidParameter, ReviewFailure
)
