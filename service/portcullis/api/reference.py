"""What a version knows of itself: its reference, its report with plots, its example images. Reads the bundle only."""

import asyncio
import bisect
import itertools
import math
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from portcullis.api.context import Context
from portcullis.api.keyed_route import keyed
from portcullis.bundle.files import Bundle
from portcullis.bundle.gate import Gate, operating_points
from portcullis.bundle.manifest import CalibrationScores, Manifest
from portcullis.errors import NotFound
from portcullis.schemas.reference import (
    ExampleImage,
    ExampleList,
    OutsideReference,
    Reference,
    ReferenceHistogram,
)

NUM_BINS = 60
NUM_QUANTILES = 1001
REPORT_FILE = "report.md"
EXAMPLES = "examples/"
IMAGE_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
}
CACHING = {"cache-control": "private, max-age=300"}

Name = Annotated[str, Path(description="A model's name", examples=["pets"])]
Version = Annotated[int | None, Query(ge=1, description="Version; without it, the model's default version")]
FilePath = Annotated[str, Path(description="A file of the bundle", examples=["plots/reliability.png"])]
_IMAGE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}
}
_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/markdown": {"schema": {"type": "string"}}}}}


def reference_router(context: Context) -> APIRouter:
    """Reading needs the key that predicting needs."""

    def bundle_of(name: str, version: int | None) -> Bundle:
        return context.registry.resolve(name, version)[0].bundle

    router = APIRouter(tags=["models"], route_class=keyed(context.access.check_predict))

    @router.get("/v1/models/{name}/reference", summary="Distribution of the calibration scores")
    async def show_reference(name: Name, version: Version = None) -> Reference:
        pipeline, gate = context.registry.resolve(name, version)
        return await asyncio.to_thread(reference_of, pipeline.manifest, gate)

    @router.get("/v1/models/{name}/report", summary="The report, in Markdown", response_class=Response, responses=_TEXT)
    async def show_report(name: Name, version: Version = None) -> Response:
        return await _send_file(bundle_of(name, version), REPORT_FILE, "text/markdown; charset=utf-8")

    @router.get(
        "/v1/models/{name}/report/{path:path}",
        summary="A plot of the report",
        response_class=Response,
        responses=_IMAGE,
    )
    async def show_plot(name: Name, path: FilePath, version: Version = None) -> Response:
        return await _send_image(bundle_of(name, version), path)

    @router.get("/v1/models/{name}/examples", summary="Example images that came with the bundle")
    async def list_examples(name: Name, version: Version = None) -> ExampleList:
        return ExampleList(examples=_examples(bundle_of(name, version).manifest))

    @router.get(
        "/v1/models/{name}/examples/{path:path}",
        summary="One example image",
        response_class=Response,
        responses=_IMAGE,
    )
    async def show_example(name: Name, path: FilePath, version: Version = None) -> Response:
        return await _send_image(bundle_of(name, version), EXAMPLES + path)

    return router


def reference_of(manifest: Manifest, gate: Gate) -> Reference:
    """Enough of the scores that gate, of calibration images and of each outside set, to tell what a threshold does."""
    outside = manifest.figures.outside if gate.part is None else {}
    return Reference(
        model=manifest.name,
        version=manifest.version,
        score=gate.score,
        num_images=gate.calibration.num_images,
        histogram=_histogram(gate.calibration),
        quantiles=_quantiles(gate.calibration),
        operating_points=list(manifest.operating_points if gate.part is None else operating_points(gate.calibration)),
        class_mix=list(manifest.class_mix),
        outside={
            name: OutsideReference(
                num_images=figures.num_images, auroc=figures.auroc, quantiles=list(figures.score_quantiles)
            )
            for name, figures in outside.items()
        },
    )


def _histogram(calibration: CalibrationScores, num_bins: int = NUM_BINS) -> ReferenceHistogram:
    """Equal bins from the smallest to the largest score; an image belongs to the bin whose lower edge it reaches."""
    low, high = calibration.scores[0], calibration.scores[-1]
    if high <= low:
        low, high = low - 0.5, high + 0.5
    edges = [low + (high - low) * i / num_bins for i in range(num_bins)] + [high]
    below = [_count_below(edge, calibration) for edge in edges[:-1]] + [calibration.num_images]
    counts = [later - earlier for earlier, later in itertools.pairwise(below)]
    return ReferenceHistogram(edges=edges, counts=counts)


def _count_below(score: float, calibration: CalibrationScores) -> int:
    position = bisect.bisect_left(calibration.scores, score)
    if calibration.ranks is None:
        return position
    return calibration.num_images if position == len(calibration.ranks) else calibration.ranks[position] - 1


def _quantiles(calibration: CalibrationScores, num_quantiles: int = NUM_QUANTILES) -> list[float]:
    """Evenly spaced quantiles, smallest score first; no more of them than there are scores."""
    num = min(num_quantiles, max(2, calibration.num_images))
    return [_quantile(i / (num - 1), calibration) for i in range(num)]


def _quantile(share: float, calibration: CalibrationScores) -> float:
    """The score of rank 1 + share (n - 1), between two kept scores by a straight line."""
    rank = 1 + share * (calibration.num_images - 1)
    ranks: tuple[int, ...] | range = calibration.ranks or range(1, calibration.num_images + 1)
    upper = min(bisect.bisect_left(ranks, rank), len(ranks) - 1)
    lower = max(0, upper - 1)
    if ranks[upper] <= rank or ranks[upper] == ranks[lower]:
        return calibration.scores[upper]
    part = (rank - ranks[lower]) / (ranks[upper] - ranks[lower])
    return math.fsum(((1 - part) * calibration.scores[lower], part * calibration.scores[upper]))


def _examples(manifest: Manifest) -> list[ExampleImage]:
    files = sorted(file for file in manifest.files if file.startswith(EXAMPLES) and _image_type(file))
    return [ExampleImage(file=file.removeprefix(EXAMPLES), title=_title(file)) for file in files]


def _title(file: str) -> str:
    return file.removeprefix(EXAMPLES).rpartition(".")[0].replace("/", ": ").replace("-", " ").replace("_", " ")


def _image_type(file: str) -> str | None:
    return IMAGE_TYPES.get(file.rpartition(".")[2].lower())


async def _send_image(bundle: Bundle, file: str) -> Response:
    media_type = _image_type(file)
    if media_type is None:
        raise NotFound(f"{file[:100]!r} is not an image of bundle {bundle.label}")
    return await _send_file(bundle, file, media_type)


async def _send_file(bundle: Bundle, file: str, media_type: str) -> Response:
    if file not in bundle.manifest.files:
        raise NotFound(f"bundle {bundle.label} holds no {file[:100]}")
    return Response(await asyncio.to_thread(bundle.read, file), media_type=media_type, headers=CACHING)
