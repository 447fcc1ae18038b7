"""`POST /v1/models/{name}/calibrate`: the gate of a version on familiar images, as the next version. Admin key."""

import asyncio
import re
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from portcullis.api.context import Context
from portcullis.api.documents import accepted
from portcullis.api.keyed_route import key_name, keyed
from portcullis.api.model_answers import workers_behind
from portcullis.api.requests import header, query, read_files
from portcullis.bundle.familiar import Picture
from portcullis.bundle.gate import DEFAULT_OPERATING_POINT
from portcullis.bundle.manifest import MAX_CALIBRATION_ROWS
from portcullis.bundle.next_version import promises_of
from portcullis.bundle.recalibration import least_images
from portcullis.errors import Conflict, Forbidden, InvalidParameter
from portcullis.lifecycle.calibrating import Order
from portcullis.schemas.models import Calibrated, PromiseInfo
from portcullis.store.review_items import ReviewStore

CALIBRATE_PATH = re.compile(r"^/v1/models/[^/]+/calibrate$")
PARAMETERS = frozenset({"version", "labels", "activate"})
DESCRIPTION = """Without a body: on the labelled images of the review queue, of which count those that were drawn by
chance, whatever their verdict. With a form of images: on those; with `labels=true` each file is called
`<label>/<name>`. The graph stays as it is. What is written is the next version: it answers only with `activate=true`,
otherwise the default is pinned and stays. Too few images are refused, and the answer says what they can promise. All of
it holds for familiar (in-distribution) images only. The answer comes when it is done, which may take minutes."""
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": False,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"files": {"type": "array", "items": {"type": "string", "format": "binary"}}},
                }
            }
        },
    }
}


def calibrate_router(context: Context) -> APIRouter:
    """One route, with images from either place."""
    router = APIRouter(tags=["admin"], route_class=keyed(context.access.check_admin))

    @router.post(
        "/v1/models/{name}/calibrate",
        summary="Calibrate the gate on familiar images, as the next version",
        description=DESCRIPTION,
        responses=accepted(Calibrated),
        openapi_extra=_BODY,
    )
    async def calibrate(
        name: Annotated[str, Path(description="A model's name", examples=["pets"])],
        who: Annotated[str, Depends(key_name)],
        request: Request,
        response: Response,
        version: Annotated[int | None, Query(ge=1, description="Whose graph; left out: the default's")] = None,
        labels: Annotated[bool, Query(description="Whether files that come along are called <label>/<name>")] = False,
        activate: Annotated[bool, Query(description="Whether the next version answers from then on")] = False,
    ) -> Calibrated:
        query(request.scope, PARAMETERS)  # refuses what is unknown
        context.registry.resolve(name, version)
        num_unlabelled = None
        if header(request.scope, b"content-type") is not None:
            pictures, source = await _uploaded(context, request, labels), "an upload"
        else:
            pictures, num_unlabelled = await asyncio.to_thread(_reviewed, _store(context, labels), name)
            source = f"the review queue of {name}"
        order = Order(name, version, pictures, source, activate)
        calibrated = await context.calibrating.calibrate(who, order)
        manifest = calibrated.manifest
        promises = await asyncio.to_thread(promises_of, manifest)
        return Calibrated(
            model=name,
            from_version=calibrated.from_version,
            version=manifest.version,
            num_images=manifest.calibration.num_images,
            left_out=calibrated.left_out,
            num_unlabelled=num_unlabelled,
            promises=[PromiseInfo(gate=one.gate, is_kept=one.is_kept, text=one.text) for one in promises],
            is_default=activate,
            behind=workers_behind(calibrated.behind, response),
        )

    return router


async def _uploaded(context: Context, request: Request, has_labels: bool) -> list[Picture]:
    files = await read_files(
        request.scope, request.receive, context.settings.max_batch_bytes, max_files=MAX_CALIBRATION_ROWS
    )
    pictures = []
    for file_name, content in files:
        label, slash, _ = file_name.partition("/")
        if has_labels and not slash:
            raise InvalidParameter(f"with labels=true a file is called <label>/<name>, got {file_name[:60]!r}")
        pictures.append(Picture(file_name, partial(bytes, content), label if has_labels else None))
    return pictures


def _store(context: Context, has_labels: bool) -> ReviewStore:
    if has_labels:
        raise InvalidParameter("labels=true goes with a form of images: those of the review queue bring theirs")
    if context.review.store is None:
        raise Forbidden("the review queue is off: start the service with review_enabled, or send images along")
    return context.review.store


def _reviewed(kept: ReviewStore, name: str) -> tuple[list[Picture], int]:
    """Labelled images that were drawn by chance, and how many of those drawn wait for a label."""
    rows, num_open = kept.sampled(name, "labelled"), len(kept.sampled(name, "open"))
    if len(rows) < least_images():
        num_labelled = kept.page({"model": name, "state": "labelled"}, limit=1).num_items
        raise Conflict(
            f"{DEFAULT_OPERATING_POINT} takes {least_images()} labelled images that were drawn by chance "
            f"(review_accept_sample), and there are {len(rows)} among {num_labelled} labelled; "
            f"{num_open} drawn ones wait for a label"
        )
    return [Picture(row["id"], partial(_content, kept, row["id"]), row["true_label"]) for row in rows], num_open


def _content(kept: ReviewStore, identifier: str) -> bytes:
    return kept.image(identifier)[0]
