"""What the supervisor publishes of drift in the instance's database: its shape, and the workers' way to read it."""

import threading
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from portcullis.errors import DatabaseAway
from portcullis.schemas.drift import DriftPoint, DriftReport, FleetReading, ScoreHistogram
from portcullis.store.database import Database, put
from portcullis.telemetry.drift_collector import DriftReading


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


class PublishedModel(_Frozen):
    """One model as it is published."""

    version: int
    part: str | None = None
    """The part that gates in the place of the version's score, where one does."""
    num_rejected: int
    detector: dict[str, Any]
    report: DriftReport
    history: tuple[DriftPoint, ...]
    scores: ScoreHistogram | None = None
    """Of every image since the version was first served. None: written before there was one."""
    series: str | None = None
    counts: tuple[int, ...] = ()
    """What was counted for the fleet, and under which name; none: written before that was done."""
    fleet: FleetReading | None = None
    """The fleet's evidence as it was last read; none where there is no fleet, or nothing was read yet."""


class Published(_Frozen):
    """All that is known of drift."""

    cursors: dict[str, int] = {}
    """The next sequence number of each ring, by file name."""
    models: dict[str, PublishedModel] = {}


def read_drift(database: Database) -> Published:
    """What was published last; nothing where there is none, or none that can be read."""
    try:
        with database.reading() as session:
            models = {row["model"]: row["body"] for row in session.run("SELECT model, body FROM drift")}
            cursors = {row["file"]: row["next_sequence"] for row in session.run("SELECT * FROM rings")}
        bodies = {name: PublishedModel.model_validate_json(body) for name, body in models.items()}
    except (DatabaseAway, ValidationError):
        return Published()
    return Published(cursors=cursors, models=bodies)


def write_drift(database: Database, content: Published) -> None:
    """Publish all of it at once; what is not in it any more goes."""
    with database.writing(is_durable=False) as session:
        for row in session.run("SELECT model FROM drift"):
            if row["model"] not in content.models:
                session.run("DELETE FROM drift WHERE model = :model", model=row["model"])
        for name, model in content.models.items():
            put(session, "drift", "model", model=name, body=model.model_dump_json())
        for file, sequence in content.cursors.items():
            put(session, "rings", "file", file=file, next_sequence=sequence)


class DriftReader:
    """What was published, read again only when something has changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._stamp: object = None
        self._content = Published()

    def read(self) -> Published:
        with self._lock:
            try:
                stamp = self._database.stamp()
            except DatabaseAway:  # what was published last stands
                return self._content
            if stamp != self._stamp:
                self._content, self._stamp = read_drift(self._database), stamp
            return self._content

    def readings(self) -> list[DriftReading]:
        """For the metrics."""
        return [
            DriftReading(name, published.version, published.report, published.scores, published.fleet)
            for name, published in self.read().models.items()
        ]
