"""The OpenAPI document and its page. Bare routes are described here by hand; a test calls what is described."""

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles
from swagger_ui_bundle import swagger_ui_path

from service.api.schemas import ErrorAnswer, ImageBody
from service.errors import (
    BadImage,
    BadRequest,
    BundleError,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    ImageTooLarge,
    InvalidParameter,
    Overloaded,
    PayloadTooLarge,
    ReviewFailure,
    ServiceError,
    StateNotWritten,
    Unauthorized,
    UnknownModel,
    UnknownReviewItem,
    UnsupportedMediaType,
)

ASSETS = "/docs/assets"
DOCS_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'"
)
_BINARY = {"schema": {"type": "string", "format": "binary"}}


def add_docs(app: FastAPI) -> None:
    """Serve the page from files of our own: it works offline and calls no outside host."""
    app.mount(ASSETS, StaticFiles(directory=swagger_ui_path), name="docs-assets")
    router = APIRouter()

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        page = get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="Portcullis API",
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon-32x32.png",
        )
        page.headers["content-security-policy"] = DOCS_POLICY
        return page

    app.include_router(router)


def describe(app: FastAPI) -> None:
    """Make the document once, with what FastAPI cannot know of the bare routes."""
    document: dict[str, Any] | None = None

    def openapi() -> dict[str, Any]:
        nonlocal document
        if document is None:
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


READ_ERRORS = errors(Unauthorized, Forbidden, UnknownModel)
ADMIN_ERRORS = errors(
    Unauthorized, Forbidden, UnknownModel, BadRequest, InvalidParameter, BundleError, Conflict, StateNotWritten
)
REVIEW_ERRORS = errors(Unauthorized, Forbidden, UnknownReviewItem, BadRequest, InvalidParameter, ReviewFailure)
PREDICT_ERRORS = errors(
    BadRequest,
    BadImage,
    Unauthorized,
    Forbidden,
    UnknownModel,
    PayloadTooLarge,
    ImageTooLarge,
    UnsupportedMediaType,
    InvalidParameter,
    Overloaded,
    DeadlineExceeded,
)


def _parameter(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


PREDICT_PARAMETERS = [
    _parameter("model", {"type": "string"}, "Model's name; without it, the default model answers"),
    _parameter("version", {"type": "integer", "minimum": 1}, "Version; without it, the model's default version"),
    _parameter("top_k", {"type": "integer", "minimum": 1, "default": 3}, "How many classes to list in `top`"),
    _parameter(
        "operating_point",
        {"type": "string", "pattern": "^accept[0-9]", "examples": ["accept99"]},
        "Gate of this request: accept<percent>; not together with threshold",
    ),
    _parameter("threshold", {"type": "number"}, "Gate of this request: an absolute score"),
    _parameter("on_reject", {"type": "integer", "enum": [200, 422], "default": 200}, "Status of a rejected image"),
]
PREDICT_BODY = {
    "required": True,
    "description": "One image, in any of these ways",
    "content": {
        "image/*": _BINARY,
        "application/octet-stream": _BINARY,
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {"file": {"type": "string", "format": "binary"}},
                "required": ["file"],
            }
        },
        "application/json": {"schema": ImageBody.model_json_schema()},
    },
}
BATCH_BODY = {
    "required": True,
    "description": "Files of any field name; each gets an answer or an error, in order",
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {
                    "files": {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1}
                },
                "required": ["files"],
            }
        }
    },
}
