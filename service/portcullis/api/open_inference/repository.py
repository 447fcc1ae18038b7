"""`/v2/repository`: the Open Inference Protocol's way to see, load and unload models."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Request, Response

from portcullis.api.context import Context
from portcullis.api.open_inference.refusals import ACCEPTED, CHANGE, READ
from portcullis.api.open_inference.schemas import IndexEntry
from portcullis.api.requests import MAX_CONTROL_BYTES, read_body, secret
from portcullis.errors import BadRequest
from portcullis.store.followers import Behind

Name = Annotated[str, Path(description="A model's name", examples=["pets"])]


def add_repository(router: APIRouter, context: Context) -> None:
    def admin(request: Request) -> str:
        return context.access.check_admin(secret(request.scope))

    @router.post("/repository/index", summary="Every version in the models directory", responses=READ)
    async def index(request: Request) -> list[IndexEntry]:
        context.access.check_predict(secret(request.scope))
        wanted = await read_control(request)
        entries = await asyncio.to_thread(index_of, context)
        return [entry for entry in entries if entry.state == "READY" or wanted.get("ready") is not True]

    @router.post(
        "/repository/models/{name}/load",
        summary="Serve the newest version (admin key)",
        response_class=Response,
        responses=CHANGE | ACCEPTED,
    )
    async def load(request: Request, name: Name) -> Response:
        who = admin(request)
        if (await read_control(request)).get("parameters"):
            raise BadRequest("a bundle is served as it is: load takes no parameters")
        served = context.registry.served.get(name)
        if served is not None and served.is_pinned:
            return Response()
        return _done(await context.changes.set_default(who, name, None, None))

    @router.post(
        "/repository/models/{name}/unload",
        summary="Stop serving a model (admin key)",
        response_class=Response,
        responses=CHANGE | ACCEPTED,
    )
    async def unload(request: Request, name: Name) -> Response:
        who = admin(request)
        await read_control(request)
        return _done(await context.changes.unload(who, name))


def _done(behind: Behind) -> Response:
    """Empty, as the protocol has it; while workers are behind, 202 with their names where clients look for a reason."""
    if not behind:
        return Response()
    reasons = "; ".join(f"{place}: {reason}" for place, reason in behind.items())
    text = f"the change is made, but not every worker has followed yet: {reasons}"
    return Response(orjson.dumps({"error": text}), HTTPStatus.ACCEPTED, media_type="application/json")


async def read_control(request: Request) -> dict[str, Any]:
    """The body of a repository call: JSON, or nothing at all."""
    body = await read_body(request.scope, request.receive, MAX_CONTROL_BYTES)
    if not body:
        return {}
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error.msg}") from None
    if not isinstance(content, dict):
        raise BadRequest("expected the body to be a JSON object, or empty")
    return content


def index_of(context: Context) -> list[IndexEntry]:
    """Served versions are ready; others lie there, unloaded or refused."""
    reasons = {(entry.model, entry.version): entry.reason for entry in context.watcher.refused()}
    served = {(name, version) for name, model in list(context.registry.served.items()) for version in model.pipelines}
    listing = context.source.at_hand()
    present = {(name, version) for name in listing.names() for version in listing.versions(name)}
    return [
        IndexEntry(
            name=name,
            version=str(version),
            state="READY" if (name, version) in served else "UNAVAILABLE",
            reason="" if (name, version) in served else reasons.get((name, version), "not loaded"),
        )
        for name, version in sorted(present | served)
    ]
