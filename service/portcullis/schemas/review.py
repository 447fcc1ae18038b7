"""The JSON of the review queue."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["open", "labelled", "dismissed"]
MAX_LABEL_LENGTH = 60  # at most 240 bytes: what a folder's name may have
LABEL_PATTERN = r"^[^\s./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*$"
"""A label names a folder of the export: no separators, no control characters, no leading dot or space."""


class _Schema(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class ReviewItem(_Schema):
    """One image that waits for a person's look, with what the service said of it."""

    id: str
    created: datetime
    model: str
    version: int
    label: str
    """What the service answered."""
    probability: float | None
    score: float | None
    p_value: float
    threshold: float | None
    operating_point: str | None
    verdict: Literal["accept", "reject"]
    reason: Literal["stranger", "unsure"] | None
    """Which rule rejected it; null where it was accepted, or kept before there were two rules."""
    candidates: list[str]
    """Labels to look at first: the prediction set that holds the truth of a familiar image 95 % of the time, the best
    first, or the most probable where the bundle cannot promise one."""
    is_sampled: bool = False
    """Whether it was drawn by chance, as accepted images are, and would have been kept whatever the verdict: such items
    are a fair sample of the traffic, and the only ones that a gate may be calibrated on."""
    media_type: str
    num_bytes: int
    num_seen: int
    """How often the very same image was offered."""
    state: State
    true_label: str | None
    """What a person says it is."""
    decided_by: str | None
    """Name of the admin key that labelled or dismissed it."""


class ReviewPage(_Schema):
    """Items, the strangest first."""

    items: list[ReviewItem]
    num_items: int
    """How many there are on all pages."""
    next_cursor: str | None
    """Give it as `cursor` for the next page; null on the last."""


class ReviewChange(_Schema):
    """Exactly one of the two."""

    label: str | None = Field(None, max_length=MAX_LABEL_LENGTH, pattern=LABEL_PATTERN, examples=["cat"])
    """What the image shows: one of the model's labels, or the name of a class that it should learn."""
    state: Literal["open", "dismissed"] | None = None
    """`dismissed`: of no use; `open`: undo."""
