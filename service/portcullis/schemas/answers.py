"""The JSON that the API speaks, as pydantic models: the source of the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from portcullis.bundle.manifest import (
    Figures,
    ImageSpec,
    MethodInfo,
    OperatingPoint,
    Provenance,
    RightPoint,
    ScoreInfo,
)
from portcullis.schemas.gates import GateInfo
from portcullis.schemas.models import RefusedInfo, ShadowInfo

_EXAMPLE_ANSWER: dict[str, Any] = {
    "model": "pets",
    "version": 2,
    "label": "Bengal",
    "class_index": 1,
    "probability": 0.49208885431289673,
    "top": [
        {"label": "Bengal", "class_index": 1, "probability": 0.49208885431289673},
        {"label": "Egyptian Mau", "class_index": 5, "probability": 0.2257644385099411},
        {"label": "Maine Coon", "class_index": 6, "probability": 0.13950176537036896},
    ],
    "score": -1.33111572265625,
    "score_name": "fitted",
    "mmles": -35.52772903442383,
    "p_value": 0.15664845173041894,
    "threshold": -2.7128143310546875,
    "min_probability": 0.0,
    "operating_point": "accept95",
    "verdict": "accept",
    "reason": None,
    "request_id": "7111fac958b5bf29",
}  # what the service answers to docs/examples/cat.jpg; a test asks it


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
    """How familiar the image is, by the score that gates; higher is more familiar. Null where there is no number."""
    score_name: str
    """Which score that is."""
    mmles: float | None
    """MMLES, whatever gates; null where the model has none."""
    p_value: float = Field(ge=0, le=1)
    """Share of familiar images that are at most this familiar; of the same answer, where the gate is by class."""
    threshold: float | None
    """Scores below it are rejected as strangers; null where none is too low."""
    min_probability: float
    """Familiar images with a lower probability are rejected as unsure."""
    operating_point: str | None
    """Name of the gate, where it has one."""
    verdict: Literal["accept", "reject"]
    reason: Literal["stranger", "unsure"] | None
    """Which rule rejected it: the score (stranger) or the probability (unsure)."""
    request_id: str
    parts: dict[str, float | None] | None = None
    """With `explain=true`: the scores that the bundle's own is made of."""
    set: list[TopEntry] | None = None
    """With `set=0.95`: the classes that hold the truth of a familiar image so often, the best first."""


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


class DeviceShift(_Schema):
    """How far this machine answers from the one that exported the bundle, by the images of the self-test."""

    score: float
    """The largest difference of a score."""
    rejected_share: float
    """By how much the share of familiar images that the gate rejects moves at the most, if theirs differ as much."""
    by_gate: dict[str, float] = Field(default_factory=dict, examples=[{"accept95": 0.0, "accept95+right99": 0.0002}])
    """The same at every gate that the bundle publishes, by class and of the method's own score too."""


class VersionInfo(_Schema):
    """One version as it is served."""

    version: int
    created: str
    labels: list[str]
    image: ImageSpec
    method: MethodInfo
    temperature: float
    num_calibration_images: int
    score: ScoreInfo | None
    """What the score is made of; null in bundles of format 1, whose score is the method's own."""
    operating_points: list[OperatingPoint]
    class_thresholds: dict[str, dict[str, float]]
    """Thresholds by label of the operating points that can be promised by class (`accept95:by-class`)."""
    promises: list[RightPoint]
    """Promises to be right that the calibration images prove, for familiar images only."""
    figures: Figures
    provenance: Provenance
    gate: GateInfo
    providers: list[str]
    """What the engine really runs on, the first first."""
    providers_asked: list[str]
    """What was asked for."""
    provider_refusals: list[str]
    """What was preferred and did not start, with the reason."""
    device_shift: DeviceShift


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

    status: str = Field(examples=["alive"])


class Readiness(_Schema):
    """What a worker that can answer runs on."""

    status: str = Field(examples=["ready"])
    provider: str = Field(examples=["cuda"])
    """Execution provider of its engines."""
    is_fallback: bool
    """Whether another provider was preferred and did not start; `GET /v1/models` says why."""
