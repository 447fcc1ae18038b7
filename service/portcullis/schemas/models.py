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

    revision: int
    """Of the desired state that it made."""
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

    adopted: list[str] = Field(examples=[["cifar10-whitened/2"]])
    refused: list[RefusedInfo]
    behind: list[WorkerBehind] = Field(default_factory=list)
    """Workers that do not serve what was adopted yet; with any of them the status is 202."""


class Unloaded(_Schema):
    """A model that is no longer served."""

    unloaded: str
    behind: list[WorkerBehind] = Field(default_factory=list)
    """Workers that serve it still; with any of them the status is 202."""
