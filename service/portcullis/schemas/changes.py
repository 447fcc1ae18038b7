"""What a call that changes something answers: what is served now, and which workers have not followed yet."""

from pydantic import Field

from portcullis.schemas.answers import ModelInfo
from portcullis.schemas.gates import GateInfo
from portcullis.schemas.models import WorkerBehind


class GateChanged(GateInfo):
    """The gate in force after a change."""

    behind: list[WorkerBehind] = Field(default_factory=list)
    """Workers that do not apply it yet; with any of them the status is 202."""


class ModelChanged(ModelInfo):
    """One name after a change."""

    behind: list[WorkerBehind] = Field(default_factory=list)
    """Workers that do not serve it so yet; with any of them the status is 202."""
