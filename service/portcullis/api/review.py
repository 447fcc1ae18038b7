"""`/v1/review`: look through the images that were kept, label or dismiss them. All of it needs an admin key."""

import asyncio
import base64
import binascii
import math
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from portcullis.api.context import Context
from portcullis.api.keyed_route import key_name, keyed
from portcullis.api.requests import query
from portcullis.errors import Forbidden, InvalidParameter
from portcullis.schemas.review import (
    ReviewChange,
    ReviewItem,
    ReviewPage,
    State,
)
from portcullis.store.review_items import MEDIA_TYPES, ReviewStore

Identifier = Annotated[str, Path(description="An item's id", examples=["6f1d0c2b9a7e4f35"])]
Verdict = Literal["accept", "reject"]
LIST_PARAMETERS = frozenset({"model", "label", "verdict", "state", "sampled", "limit", "cursor"})
_IMAGES: dict[int | str, dict[str, Any]] = {
    200: {"content": {media_type: {} for media_type in sorted(set(MEDIA_TYPES.values()))}}
}


def review_router(context: Context) -> APIRouter:
    """They are users' images, so that even looking needs an admin key."""

    async def store() -> ReviewStore:
        if context.review.store is None:
            raise Forbidden("the review queue is off: start the service with review_enabled")
        return context.review.store

    Kept = Annotated[ReviewStore, Depends(store)]  # noqa: N806 (a type)
    router = APIRouter(tags=["review"], route_class=keyed(context.access.check_admin))

    @router.get("/v1/review", summary="Images kept for review, the strangest first (admin key)")
    async def list_items(
        kept: Kept,
        request: Request,
        model: str | None = None,
        label: Annotated[str | None, Query(description="What the service answered")] = None,
        verdict: Verdict | None = None,
        state: State | None = None,
        sampled: Annotated[bool | None, Query(description="Whether drawn by chance, whatever the verdict")] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        cursor: Annotated[str | None, Query(description="next_cursor of the page before")] = None,
    ) -> ReviewPage:
        query(request.scope, LIST_PARAMETERS)  # refuses what is unknown: a typing error must not list everything
        wanted = {"model": model, "label": label, "verdict": verdict, "state": state, "is_sampled": sampled}
        page = await asyncio.to_thread(kept.page, wanted, limit, _position(cursor))
        following = _cursor(page.next_position) if page.next_position else None
        return ReviewPage(items=[_item(row) for row in page.rows], num_items=page.num_items, next_cursor=following)

    @router.get(
        "/v1/review/{id}/image",
        summary="The image of one item, as it came (admin key)",
        response_class=Response,
        responses=_IMAGES,
    )
    async def show_image(kept: Kept, id: Identifier) -> Response:  # noqa: A002 (the path's own word)
        content, media_type = await asyncio.to_thread(kept.image, id)
        return Response(content, media_type=media_type, headers={"cache-control": "no-store"})

    @router.put("/v1/review/{id}", summary="Label, dismiss or reopen one item (admin key)")
    async def decide(
        kept: Kept,
        id: Identifier,  # noqa: A002
        change: ReviewChange,
        who: Annotated[str, Depends(key_name)],
    ) -> ReviewItem:
        if (change.label is None) == (change.state is None):
            raise InvalidParameter("give exactly one of label and state")
        state = change.state or "labelled"
        decided_by = None if state == "open" else who
        return _item(await asyncio.to_thread(kept.decide, id, state, change.label, decided_by))

    return router


def _item(row: dict[str, Any]) -> ReviewItem:
    shown = {name: row[name] for name in ReviewItem.model_fields if name in row}
    shown |= {
        "created": datetime.fromtimestamp(row["created"], UTC),
        "media_type": MEDIA_TYPES[row["extension"]],
        "threshold": row["threshold"] if row["threshold"] > -math.inf else None,
        "candidates": orjson.loads(row["candidates"]),
    }
    return ReviewItem(**shown)


def _cursor(position: tuple[float, float, str]) -> str:
    p_value, sort_score, identifier = position
    return base64.urlsafe_b64encode(orjson.dumps([p_value, repr(sort_score), identifier])).decode().rstrip("=")


def _position(cursor: str | None) -> tuple[float, float, str] | None:
    if cursor is None:
        return None
    try:
        p_value, sort_score, identifier = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return float(p_value), float(sort_score), str(identifier)
    except (binascii.Error, ValueError, TypeError):
        raise InvalidParameter("cursor must be the next_cursor of another page") from None
