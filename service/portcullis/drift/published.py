"""The file in which the supervisor publishes what it knows of drift: its format, and the workers' way to read it."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from portcullis.schemas.drift import DriftPoint, DriftReport, ScoreHistogram
from portcullis.telemetry.collectors import DriftReading

DRIFT_FILE = "drift.json"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


class PublishedModel(_Frozen):
    """One model as the file has it."""

    version: int
    part: str | None = None
    """The part that gates in the place of the version's score, where one does."""
    num_rejected: int
    detector: dict[str, Any]
    report: DriftReport
    history: tuple[DriftPoint, ...]
    scores: ScoreHistogram | None = None
    """Of every image since the version was first served. None: written before there was one."""


class DriftFile(_Frozen):
    """All that is known of drift."""

    cursors: dict[str, int] = {}
    """The next sequence number of each ring, by file name."""
    models: dict[str, PublishedModel] = {}


def read_drift_file(directory: Path) -> DriftFile:
    """What was published last; nothing where there is none or it is damaged."""
    try:
        return DriftFile.model_validate_json((directory / DRIFT_FILE).read_bytes())
    except (OSError, ValidationError):
        return DriftFile()


class DriftReader:
    """The published file, read again only when it has changed."""

    def __init__(self, runtime: Path) -> None:
        self._runtime = runtime
        self._stamp: Any = None
        self._content = DriftFile()

    def read(self) -> DriftFile:
        try:
            status = (self._runtime / DRIFT_FILE).stat()
        except OSError:
            return DriftFile()
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            self._content, self._stamp = read_drift_file(self._runtime), stamp
        return self._content

    def readings(self) -> list[DriftReading]:
        """For the metrics."""
        return [
            DriftReading(name, published.version, published.report, published.scores)
            for name, published in self.read().models.items()
        ]
