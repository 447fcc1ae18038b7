"""What can be asked of a service, as data: a request and how to read its answer. No connection here."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from portcullis.client.failures import Refused, Unreadable
from portcullis.schemas.answers import (
    Answer,
    BatchAnswer,
    ModelInfo,
    ModelList,
    Readiness,
)
from portcullis.schemas.changes import GateChanged, ModelChanged
from portcullis.schemas.drift import DriftInfo
from portcullis.schemas.gates import GateInfo
from portcullis.schemas.models import Calibrated, ScanResult, Unloaded
from portcullis.schemas.review import ReviewItem, ReviewPage

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)
Image = str | os.PathLike[str] | bytes | BinaryIO
"""An image: a path, its bytes, or an open binary file."""


class Choice(TypedDict, total=False):
    """What a prediction may ask for beyond the image."""

    model: str
    version: int
    top_k: int
    operating_point: str
    """As `[score:]accept<percent>[:by-class][+right<percent>]`, `right<percent>` or `[score:]<number>`."""
    threshold: float
    explain: bool
    """Show the parts of the score."""
    set: float
    """Add the classes that hold the truth of a familiar image so often, such as 0.95."""


class Filter(TypedDict, total=False):
    """Which items of the review queue."""

    model: str
    label: str
    verdict: Literal["accept", "reject"]
    state: Literal["open", "labelled", "dismissed"]
    sampled: bool
    """Whether it was drawn by chance, whatever its verdict."""
    limit: int
    cursor: str


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and the reader of its answer."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    query: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    files: tuple[tuple[str, bytes], ...] = ()
    can_repeat: bool = True
    """Whether it may be sent again when it is unknown whether the first one arrived."""
    takes_minutes: bool = False
    """Whether the service is silent for long before it answers."""

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for httpx's `request`."""
        arguments: dict[str, Any] = {"method": self.method, "url": self.path, "params": dict(self.query)}
        if self.content is not None:
            arguments |= {"content": self.content, "headers": {"content-type": "application/octet-stream"}}
        if self.files:
            arguments["files"] = [("files", file) for file in self.files]
        if self.json is not None:
            arguments["json"] = self.json
        return arguments


def as_model(model: type[Model]) -> Callable[[httpx.Response], Model]:
    """Read JSON as `model`; a field that a newer service added is passed over."""

    def read(response: httpx.Response) -> Model:
        try:
            return model.model_validate_json(response.content, extra="ignore")
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"])) or "body"
            raise Unreadable(
                "bad_answer",
                f"expected the JSON of {model.__name__}, got something else at {where}",
                response.status_code,
                response.headers.get("x-request-id"),
            ) from None

    return read


def read_image(image: Image) -> tuple[str, bytes]:
    """Name and bytes of an image; read whole, so that it can be sent again."""
    if isinstance(image, bytes):
        return "image", image
    if isinstance(image, str | os.PathLike):
        return Path(image).name, Path(image).read_bytes()
    return Path(str(getattr(image, "name", "image"))).name, image.read()


def predict(image: Image, choice: Choice) -> Call[Answer]:
    content = read_image(image)[1]
    return Call("POST", "/v1/predict", as_model(Answer), query=choice, content=content)


def predict_batch(files: tuple[tuple[str, bytes], ...], choice: Choice) -> Call[BatchAnswer]:
    return Call("POST", "/v1/predict/batch", as_model(BatchAnswer), query=choice, files=files)


def ready() -> Call[Readiness]:
    return Call("GET", "/readyz", as_model(Readiness))


def models() -> Call[ModelList]:
    return Call("GET", "/v1/models", as_model(ModelList))


def model(name: str) -> Call[ModelInfo]:
    return Call("GET", f"/v1/models/{_segment(name)}", as_model(ModelInfo))


def gate(name: str) -> Call[GateInfo]:
    return Call("GET", f"/v1/models/{_segment(name)}/gate", as_model(GateInfo))


def drift(name: str) -> Call[DriftInfo]:
    return Call("GET", f"/v1/models/{_segment(name)}/drift", as_model(DriftInfo))


def set_gate(name: str, operating_point: str | None, threshold: float | None) -> Call[GateChanged]:
    _check_number("threshold", threshold)
    change = {"operating_point": operating_point} if operating_point is not None else {"threshold": threshold}
    return Call("PUT", f"/v1/models/{_segment(name)}/gate", as_model(GateChanged), json=change)


def rescan() -> Call[ScanResult]:
    return Call("POST", "/v1/models/rescan", as_model(ScanResult))


def load(name: str, version: int) -> Call[ModelChanged]:
    return Call("POST", f"/v1/models/{_segment(name)}/versions/{version}", as_model(ModelChanged))


def calibrate(name: str, version: int | None, activate: bool) -> Call[Calibrated]:
    given = {"version": version, "activate": activate or None}
    chosen = {key: value for key, value in given.items() if value is not None}
    path = f"/v1/models/{_segment(name)}/calibrate"
    return Call("POST", path, as_model(Calibrated), query=chosen, can_repeat=False, takes_minutes=True)


def unload(name: str) -> Call[Unloaded]:
    return Call("DELETE", f"/v1/models/{_segment(name)}", as_model(Unloaded), can_repeat=False)


def unload_version(name: str, version: int) -> Call[ModelChanged]:
    path = f"/v1/models/{_segment(name)}/versions/{version}"
    return Call("DELETE", path, as_model(ModelChanged), can_repeat=False)


def swap(name: str, version: int | None, pin: bool | None) -> Call[ModelChanged]:
    change = {"version": version, "pin": pin}
    return Call("PUT", f"/v1/models/{_segment(name)}/default", as_model(ModelChanged), json=change)


def start_shadow(name: str, version: int, share: float) -> Call[ModelChanged]:
    _check_number("share", share)
    change = {"version": version, "share": share}
    return Call("PUT", f"/v1/models/{_segment(name)}/shadow", as_model(ModelChanged), json=change)


def drop_shadow(name: str) -> Call[ModelChanged]:
    return Call("DELETE", f"/v1/models/{_segment(name)}/shadow", as_model(ModelChanged), can_repeat=False)


def promote_shadow(name: str) -> Call[ModelChanged]:
    return Call("POST", f"/v1/models/{_segment(name)}/shadow/promote", as_model(ModelChanged), can_repeat=False)


def review(chosen: Filter) -> Call[ReviewPage]:
    return Call("GET", "/v1/review", as_model(ReviewPage), query=chosen)


def review_image(item: str) -> Call[bytes]:
    return Call("GET", f"/v1/review/{_segment(item)}/image", lambda response: response.content)


def review_change(item: str, change: Mapping[str, str]) -> Call[ReviewItem]:
    return Call("PUT", f"/v1/review/{_segment(item)}", as_model(ReviewItem), json=dict(change))


def _check_number(name: str, value: float | None) -> None:
    """Refuse what JSON cannot say, as the service would."""
    if value is not None and not math.isfinite(value):
        raise Refused("invalid_parameter", f"expected a {name} that is a finite number, got {value}")


def _segment(text: str) -> str:
    return quote(text, safe="")
