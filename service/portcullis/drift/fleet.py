"""The fleet's evidence of drift: tells the database what this instance has counted, and, where that falls to it, takes
in what all have told. Stands between the drift thread, which counts, and the link's, which has the connection.
"""

import json
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portcullis.drift.block_evidence import BlockEvidence, after, begin
from portcullis.schemas.drift import FleetReading
from portcullis.store.database import Line, Row, Session
from portcullis.store.drift_counts import (
    RETELL_SECONDS,
    Told,
    bounds_of,
    end_evidence,
    end_series,
    falls_to,
    read_evidence,
    series_of,
    take_counts,
    take_lead,
    tell,
    tell_first,
    tidy,
    write_evidence,
)

logger = logging.getLogger(__name__)

TIDY_SECONDS = 60.0


@dataclass(frozen=True)
class Said:
    """A series as the drift thread has it now."""

    told: Told
    is_new: bool
    """Whether no database can have heard of it."""


class FleetEvidence:
    """One an instance. `say`, `forgotten` and `reading` are for the drift thread, `visit` for the link's."""

    def __init__(self, instance: str, clock: str, alarm_images: float) -> None:
        self._instance, self._clock, self._alarm_images = instance, clock, alarm_images
        self._lock = threading.Lock()
        self._said: tuple[Said, ...] = ()
        self._forgotten: set[str] = set()
        self._readings: dict[str, FleetReading] = {}
        self._known: dict[str, tuple[Told, float]] = {}
        """What the database has of us, by series, and when it was told."""
        self._next_tidy = 0.0
        self._has_begun = False

    # -- the drift thread's side -------------------------------------------------------------------------------------

    def say(self, said: Iterable[Said]) -> None:
        """All that is counted now; a series that is not among them is over."""
        with self._lock:
            self._said = tuple(said)

    def forgotten(self) -> set[str]:
        """Series that the database does not know as we do: they must begin anew."""
        with self._lock:
            found, self._forgotten = self._forgotten, set()
            return found

    def reading(self, watched: str) -> FleetReading | None:
        """The fleet's evidence as it was last read."""
        return self._readings.get(watched)

    # -- the link's side ---------------------------------------------------------------------------------------------

    def visit(self, line: Line) -> None:
        """Tell what is new, take in what all have told if that falls to us, read the evidence."""
        now = time.monotonic()
        with line.at_once() as session:
            self._tell_all(session, now)
            lead, evidence = read_evidence(session, self._clock)
        if falls_to(lead, self._instance):
            with line.writing(is_durable=False) as session:
                if take_lead(session, self._clock, self._instance):
                    self._lead(session, now)
                    lead, evidence = read_evidence(session, self._clock)
        self._readings = {watched: _reading(row, lead) for watched, row in evidence.items() if lead is not None}

    def _tell_all(self, session: Session, now: float) -> None:
        with self._lock:
            said = self._said
        for one in said:
            moment = self._tell(session, one, now)
            if moment is not None:
                self._known[one.told.series] = (one.told, moment)
        for series in self._known.keys() - {one.told.series for one in said}:
            end_series(session, series)
            del self._known[series]
        if said and not self._has_begun:
            self._end_earlier(session, said)
            self._has_begun = True

    def _end_earlier(self, session: Session, said: Iterable[Said]) -> None:
        """What we told before we were killed, of what is served no more: nobody has said that it is over."""
        followed = {one.told.watched for one in said}
        for row in series_of(session, self._instance):
            if row["watched"] not in followed:
                end_series(session, row["series"])

    def _tell(self, session: Session, one: Said, now: float) -> float | None:
        """Have the database know a series; when it was told what it knows, or None where it must begin anew."""
        told, moment = self._known.get(one.told.series, (None, 0.0))
        if told == one.told and now < moment + RETELL_SECONDS:
            return moment
        if tell(session, self._clock, one.told):
            return now
        if one.is_new and told is None:
            tell_first(session, self._clock, self._instance, one.told)
            return now
        with self._lock:
            self._forgotten.add(one.told.series)
        return None

    def _lead(self, session: Session, now: float) -> None:
        end_evidence(session, self._clock)
        _, kept = read_evidence(session, self._clock)
        for watched, counts in _blocks(take_counts(session)).items():
            row = kept.get(watched) or bounds_of(session, watched)
            evidence = after(self._evidence(row), counts)
            write_evidence(session, watched, row["model"], evidence.model_dump_json())
        if now >= self._next_tidy:
            self._next_tidy = now + TIDY_SECONDS
            tidy(session, self._clock)

    def _evidence(self, row: Row) -> BlockEvidence:
        """The evidence that goes on, or a new one."""
        if "body" in row:
            evidence = BlockEvidence.model_validate_json(row["body"])
            return evidence.model_copy(update={"threshold": self._alarm_images})
        return begin(json.loads(row["bounds"]), self._alarm_images)


def _blocks(rows: list[Row]) -> dict[str, NDArray[np.int64]]:
    """What all series of the same kind have counted since they were last taken in, as one block."""
    blocks: dict[str, NDArray[np.int64]] = {}
    for row in rows:
        counts = np.array(json.loads(row["counts"]), np.int64)
        counts = counts - np.array(json.loads(row["before"] or "0"), np.int64)
        if counts.min() < 0 or counts[1:].max() > counts[0]:
            logger.error("an instance tells counts of %s that cannot be; they are left out", row["watched"])
            continue
        blocks[row["watched"]] = blocks.get(row["watched"], 0) + counts
    return blocks


def _reading(row: Row, lead: Row) -> FleetReading:
    evidence = BlockEvidence.model_validate_json(row["body"])
    return FleetReading(
        evidence_log10=evidence.evidence_log10,
        alarm=evidence.alarm,
        threshold=evidence.threshold,
        num_images_since_reset=evidence.num_images,
        num_alarms_since_reset=evidence.num_alarms,
        updated_by=lead["instance"],
        age_seconds=lead["age"],
        read_at=time.time(),
    )
