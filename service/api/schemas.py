"""The JSON that the API speaks, as pydantic models: the source of the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.api.model_schemas import RefusedInfo, ShadowInfo
from service.bundle import Figures, ImageSpec, MethodInfo, OperatingPoint, Provenance

_EXAMPLE_ANSWER: dict[str, Any] = {
    "model": "cifar10-resnet9",
    "version": 1,
    "label": "cat",
    "class_index": 3,
    "probability": 0.9312,
    "top": [{"label": "cat", "class_index": 3, "probability": 0.9312}],
    "score": -3.2715,
    "p_value": 0.4128,
    "threshold": -3.9021,
    "operating_point": "accept95",
    "verdict": "accept",
    "request_id": "6f1d0c2b9a7e4f35",
}


class _Schema(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class TopEntry(_Schema):
    """One of the most probable classes."""

    label: str
    class_index: int
    probability: float


class Answer(_Schema):
    """What the service says of one image."""

    model_config = ConfigDict(use_attribute_docstrings=True, json_schema_extra={"examples": [_EXAMPLE_ANSWER]})

    model: str
    version: int
    label: str
    """The most probable class."""
    class_index: int
    probability: float
    """Calibrated probability of that class."""
    top: list[TopEntry]
    """The top_k most probable classes, the best first."""
    score: float | None
    """How familiar the image is; higher is more familiar. Null where the engine gave no number."""
    p_value: float = Field(ge=0, le=1)
    """Share of familiar images that are at most this familiar."""
    threshold: float
    """Scores below it are rejected."""
    operating_point: str | None
    """Name of the threshold, where it has one."""
    verdict: Literal["accept", "reject"]
    request_id: str


class ErrorDetail(_Schema):
    """What went wrong and whose fault it is."""

    code: str
    message: str
    request_id: str | None


class ErrorAnswer(_Schema):
    """The one shape of every refusal."""

    error: ErrorDetail


class BatchEntry(_Schema):
    """An answer or an error for one file."""

    file: str
    answer: Answer | None = None
    error: ErrorDetail | None = None


class BatchAnswer(_Schema):
    """One entry a file, in the order in which they came."""

    results: list[BatchEntry]
    request_id: str


class ImageBody(_Schema):
    """An image inside JSON."""

    image: str = Field(
        examples=["iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"]
    )
    """The file's bytes in base64; a data: URL is understood too."""


class GateInfo(_Schema):
    """The gate in force for one version."""

    model: str
    version: int
    operating_point: str | None
    threshold: float
    """Scores below it are rejected."""
    expected_rejected_share: float | None
    """Share of familiar images rejected at the most: promised by an operating point, counted for a threshold."""


class GateChange(_Schema):
    """Exactly one of the two."""

    operating_point: str | None = Field(None, examples=["accept97.5"])
    """accept<percent>: keeps that share of familiar images, by proof."""
    threshold: float | None = None
    """An absolute score."""


class VersionInfo(_Schema):
    """One version as it is served."""

    version: int
    created: str
    labels: list[str]
    image: ImageSpec
    method: MethodInfo
    temperature: float
    num_calibration_images: int
    operating_points: list[OperatingPoint]
    figures: Figures
    provenance: Provenance
    gate: GateInfo
    providers: list[str]
    """What the engine really runs on, the first first."""
    providers_asked: list[str]
    """What was asked for."""


class ModelInfo(_Schema):
    """One name with its versions."""

    name: str
    default_version: int
    is_pinned: bool
    is_default: bool
    """Whether it answers requests that name no model."""
    versions: list[VersionInfo]
    shadow: ShadowInfo | None
    """The candidate that is compared with the default version, where there is one."""
    refused: list[RefusedInfo]
    """Versions in the models directory that do not validate."""
    problem: str | None
    """Why this worker does not serve the model as wanted, while it does not."""


class ModelList(_Schema):
    """Everything that is served."""

    models: list[ModelInfo]
    refused: list[RefusedInfo]
    """Versions of any name in the models directory that do not validate."""


class Health(_Schema):
    """A probe's answer."""

    status: str = Field(examples=["ready"])


class ReferenceHistogram(_Schema):
    """Counts of the calibration scores in equal bins."""

    edges: list[float]
    """One more than there are counts."""
    counts: list[int]


class OutsideReference(_Schema):
    """The scores of one outside set, as measured when the bundle was made."""

    num_images: int
    auroc: float
    quantiles: list[float]
    """Evenly spaced quantiles, smallest score first; empty where the bundle has none."""


class Reference(_Schema):
    """The distribution that scores are compared with."""

    model: str
    version: int
    score: str
    """Name of the score; higher is more familiar."""
    num_images: int
    histogram: ReferenceHistogram
    quantiles: list[float]
    """Evenly spaced quantiles of the calibration scores, smallest first."""
    operating_points: list[OperatingPoint]
    class_mix: list[float]
    """Share of each predicted class among the calibration images."""
    outside: dict[str, OutsideReference]


class ExampleImage(_Schema):
    """An image that came with the bundle."""

    file: str
    title: str


class ExampleList(_Schema):
    """All of a bundle's example images."""

    examples: list[ExampleImage]
