"""The JSON of the gate: what is in force, what may be asked for, what each can promise."""

from pydantic import BaseModel, ConfigDict, Field

from portcullis.bundle.manifest import RightPoint


class _Schema(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class GateInfo(_Schema):
    """The gate in force for one version."""

    model: str
    version: int
    operating_point: str | None
    score: str
    """Name of the score that is compared; higher is more familiar."""
    threshold: float | None
    """Scores below it are rejected as strangers. Null where the gate is by class or asks for a probability alone."""
    class_thresholds: dict[str, float] | None
    """By label, where the gate is by class."""
    min_probability: float
    """Answers of a lower probability are rejected as unsure; 0 where none is."""
    right: RightPoint | None
    """What is promised about the answers that pass, for familiar images only."""
    expected_rejected_share: float | None
    """Share of familiar images rejected: at the most where an operating point promises it, else counted."""


class GateChange(_Schema):
    """Exactly one of the two."""

    operating_point: str | None = Field(None, examples=["accept97.5", "accept95:by-class+right99"])
    """`[score:]accept<percent>[:by-class][+right<percent>]` or `right<percent>`: promises about familiar images."""
    threshold: float | None = None
    """An absolute score."""
