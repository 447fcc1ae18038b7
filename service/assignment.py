"""What the supervisor tells a worker at its start, and where they meet in the runtime directory. Light to import."""

import json
from dataclasses import dataclass

from service.settings import Settings

METRICS_DIRECTORY = "metrics"
RINGS_DIRECTORY = "rings"
SHADOW_DIRECTORY = "shadow"


@dataclass(frozen=True)
class Assignment:
    """One worker's place and duties."""

    settings: Settings
    slot: int
    device_id: int | None
    """GPU of this worker; none on the CPU."""
    socket_descriptor: int
    is_first: bool = True
    """Whether the service starts, rather than replaces a worker that died."""

    def to_json(self) -> str:
        """For the worker's private pipe only: the secrets of the settings are in it."""
        return json.dumps({**vars(self), "settings": self.settings.with_secrets()})

    @staticmethod
    def from_json(line: str) -> "Assignment":
        fields = json.loads(line)
        return Assignment(**{**fields, "settings": Settings.model_validate(fields["settings"])})
