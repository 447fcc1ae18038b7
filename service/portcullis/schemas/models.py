"""The JSON of the calls that change what is served."""

from pydantic import BaseModel, ConfigDict, Field


class _Schema(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class DefaultChange(_Schema):
    """Which version answers when a request names none."""

    version: int | None = Field(None, ge=1, examples=[2])
    """Null: the newest that lies in the models directory."""
    pin: bool | None = None
    """Whether it stays when a newer one appears; left out: a version that is named is pinned, the newest is not."""


class ShadowChange(_Schema):
    """A candidate and its share."""

    version: int = Field(ge=1, examples=[2])
    share: float = Field(gt=0, le=1, examples=[0.1])
    """Share of the live traffic that the candidate sees."""


class ShadowInfo(_Schema):
    """A candidate beside the version that answers; means over the compared images of all workers."""

    version: int
    share: float
    num_images: int
    """Images compared."""
    num_dropped: int
    """Images that it did not see, as it or the live engine was busy."""
    num_failed: int
    """Images on which it failed."""
    num_unfit: int
    """Images that came as pixels (`/v2`) of another size than its own: scaled, they would be other images."""
    label_agreement: float | None
    """Share of images with the same label."""
    verdict_agreement: float | None
    """Share of images with the same verdict, each at the gate of its own version."""
    p_value_shift: float | None
    """Mean p-value of the candidate less that of the served version."""
    score_shift: float | None
    """Likewise of the score; only of use where both have the same scale."""
    seconds: float | None
    """Mean engine time of the candidate for one image."""
    live_seconds: float | None
    """Mean engine time of the batches that gave the live answers."""


class PromiseInfo(_Schema):
    """A gate that people ask for, and whether the calibration images can promise it."""

    gate: str = Field(examples=["accept95+right99"])
    is_kept: bool
    text: str
    """What is promised, for familiar images only, or why it cannot be."""


class RefusedInfo(_Schema):
    """A version in the models directory that does not validate, and so changes nothing."""

    model: str
    version: int
    reason: str
    time: float
    """When it was tried, in seconds since 1970."""


class WorkerBehind(_Schema):
    """A worker that has not followed a change. The change stands: it goes on trying by itself."""

    instance: str = ""
    """The instance that it belongs to, by the setting `instance`."""
    worker: int | None
    """Its slot there, from 0; null where who has followed is not known."""
    reason: str = Field(examples=["opening version 2"])


class AuditLine(_Schema):
    """One change of what is served: when, whose key, what."""

    number: int
    revision: int | None
    """Of the desired state that it made; null where it changed something else."""
    time: str
    key: str
    """Name of the admin key, or what changed it in the place of one, in brackets."""
    action: str
    model: str | None
    details: dict[str, str | int | float | bool | None]


class AuditLog(_Schema):
    """The latest changes, the oldest first."""

    lines: list[AuditLine]


class ScanResult(_Schema):
    """What a look at the models directory led to."""

    adopted: list[str] = Field(examples=[["pets/2"]])
    refused: list[RefusedInfo]
    behind: list[WorkerBehind] = Field(default_factory=list)
    """Workers that do not serve what was adopted yet; with any of them the status is 202."""


class Calibrated(_Schema):
    """The version that a calibration has written. It answers only where that was asked for."""

    model: str
    from_version: int
    """Whose graph it has."""
    version: int
    num_images: int
    """Familiar images that count."""
    left_out: dict[str, int]
    """Images that do not count, by reason."""
    num_unlabelled: int | None
    """Sampled images of the review queue that nobody has labelled yet: the promises hold if none was picked. Null where
    images came along."""
    promises: list[PromiseInfo]
    is_default: bool
    """Whether it answers when a request names no version."""
    behind: list[WorkerBehind] = Field(default_factory=list)
    """Workers that do not serve it yet, where it is to answer; with any of them the status is 202."""


class Unloaded(_Schema):
    """A model that is no longer served."""

    unloaded: str
    behind: list[WorkerBehind] = Field(default_factory=list)
    """Workers that serve it still; with any of them the status is 202."""
