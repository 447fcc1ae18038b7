"""What the supervisor tells a worker at its start, and where they meet in the runtime directory. Light to import."""

import json
from dataclasses import dataclass

from portcullis.processes.placement import Placement
from portcullis.settings import Settings

METRICS_DIRECTORY = "metrics"
MODELS_DIRECTORY = "models"
RINGS_DIRECTORY = "rings"
SHADOW_DIRECTORY = "shadow"


@dataclass(frozen=True)
class Assignment:
    """One worker's place and duties."""

    settings: Settings
    slot: int
    placement: Placement
    device: str | None
    """GPU of this worker, as CUDA_VISIBLE_DEVICES names it; none on the CPU."""
    socket_descriptor: int
    control_descriptor: int
    """Where the worker tells the supervisor how it is (control.py)."""
    is_first: bool = True
    """Whether the service starts, rather than replaces a worker that died."""

    def to_json(self) -> str:
        """For the worker's private pipe only: the secrets of the settings are in it."""
        fields = {**vars(self), "settings": self.settings.with_secrets(), "placement": vars(self.placement)}
        return json.dumps(fields)

    @staticmethod
    def from_json(line: str) -> "Assignment":
        fields = json.loads(line)
        settings, placement = Settings.model_validate(fields["settings"]), Placement.from_json(fields["placement"])
        return Assignment(**{**fields, "settings": settings, "placement": placement})
