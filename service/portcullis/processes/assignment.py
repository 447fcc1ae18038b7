"""What the supervisor tells a process at its start, and where they meet in the runtime directory. Light to import."""

import json
from dataclasses import dataclass

from portcullis.processes.placement import Placement
from portcullis.settings import Settings

METRICS_DIRECTORY = "metrics"
MODELS_DIRECTORY = "models"
RINGS_DIRECTORY = "rings"
SHADOW_DIRECTORY = "shadow"


@dataclass(frozen=True)
class DeviceLink:
    """How the processes of one device find each other."""

    address: str
    """Of the engine process, in hexadecimal digits: a name in the kernel, not a file."""
    board_descriptor: int
    front: int = 0
    """Which of the device's fronts this worker is."""


@dataclass(frozen=True)
class Assignment:
    """The place and duties of one worker, or of one engine process."""

    settings: Settings
    slot: int
    placement: Placement
    device: str | None
    """GPU of an engine process, as CUDA_VISIBLE_DEVICES names it; none for a worker."""
    socket_descriptor: int
    """Where a worker takes connections of clients, an engine process lanes of its fronts."""
    control_descriptor: int
    """Where the process tells the supervisor how it is (control.py)."""
    is_first: bool = True
    """Whether the service starts, rather than replaces a process that died."""
    link: DeviceLink | None = None
    """None for a worker that has its engine in itself."""

    def to_json(self) -> str:
        """For the process's private pipe only: the secrets of the settings are in it."""
        fields = {**vars(self), "settings": self.settings.with_secrets(), "placement": vars(self.placement)}
        fields["link"] = self.link and vars(self.link)
        return json.dumps(fields)

    @staticmethod
    def from_json(line: str) -> "Assignment":
        fields = json.loads(line)
        settings, placement = Settings.model_validate(fields["settings"]), Placement.from_json(fields["placement"])
        link = fields["link"] and DeviceLink(**fields["link"])
        return Assignment(**{**fields, "settings": settings, "placement": placement, "link": link})
