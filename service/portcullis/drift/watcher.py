"""Follows the rings of all workers and keeps the evidence of drift, one detector a model. Lives in the supervisor.

About once a second it reads what the workers answered since, and publishes all it knows in the instance's database:
the workers tell it to whoever asks, and after a restart the evidence goes on from there. A swap begins anew.
"""

import logging
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.gate import Gate
from portcullis.bundle.manifest import Manifest
from portcullis.bundle.promises import choose
from portcullis.bundle.sources.source import Source
from portcullis.drift import histogram
from portcullis.drift.evidence import Detector
from portcullis.drift.fleet import FleetEvidence
from portcullis.drift.published import Published, read_drift, write_drift
from portcullis.drift.rings import (
    RECORD,
    find_rings,
    in_order,
    model_key,
    read_recent,
)
from portcullis.drift.tally import Tally
from portcullis.drift.tracked import Tracked
from portcullis.errors import DatabaseAway, ServiceError, StateNotWritten
from portcullis.store.database import Database
from portcullis.store.state import StateStore

logger = logging.getLogger(__name__)

UPDATE_SECONDS = 1.0
POINT_SECONDS = 2.0
MAX_POINTS = 300


class DriftWatch:
    """Reads rings, gathers evidence, publishes."""

    def __init__(
        self,
        source: Source,
        database: Database,
        rings: Path,
        window_size: int,
        alarm_images: float,
        fleet: FleetEvidence | None = None,
    ) -> None:
        self._fleet = fleet
        self._source, self._database, self._rings = source, database, rings
        self._window_size, self._alarm_images = window_size, alarm_images
        self._store = StateStore(database)
        before = read_drift(database)
        self._cursors = dict(before.cursors)
        self._before = dict(before.models)
        self._tracked: dict[str, Tracked] = {}
        self._next_point = 0.0
        self._is_writable = True

    def run(self, stopping: threading.Event) -> None:
        """Update until told to stop, and once more then; outlives any failure."""
        is_over = False
        while not is_over:
            is_over = stopping.wait(UPDATE_SECONDS)
            try:
                self.update()
            except Exception:
                logger.exception("could not follow drift; trying again")

    def update(self, now: float | None = None) -> None:
        """Take in everything new and publish; `now` is the monotonic clock's."""
        self._choose()
        self._begin_forgotten_anew()
        records = self._read()
        for name, tracked in self._tracked.items():
            key = model_key(name, tracked.manifest.version, tracked.gate.part)
            tracked.take(records[records["model_key"] == np.uint64(key)], self._window_size)
        self._publish(time.monotonic() if now is None else now)

    # -- steps -------------------------------------------------------------------------------------------------------

    def _choose(self) -> None:
        """Follow the default version of every name that is served, by the score that gates it."""
        state = self._store.at_hand()
        if state is None:  # it cannot be read just now: what was followed is followed on
            return
        for name in set(self._tracked) - set(state.models):
            del self._tracked[name]
        for name, model in state.models.items():
            tracked = self._tracked.get(name)
            if tracked and tracked.manifest.version == model.default and tracked.text == model.gate:
                continue
            try:
                self._follow(name, model.default, model.gate)
            except ServiceError as error:  # the workers serve what they have in memory; nothing to compare with
                self._tracked.pop(name, None)
                logger.error("cannot follow the drift of %s/%d: %s", name, model.default, error)

    def _follow(self, name: str, version: int, text: str) -> None:
        """Begin with another version or score; another threshold on the same score changes nothing here."""
        tracked = self._tracked.get(name)
        is_same = tracked is not None and tracked.manifest.version == version
        manifest = tracked.manifest if tracked and is_same else self._source.load(name, version).manifest
        gate = choose(text, manifest)
        if tracked and is_same and tracked.gate.part == gate.part:
            tracked.text, tracked.gate = text, gate
        else:
            self._tracked[name] = self._begin(name, manifest, text, gate)

    def _begin(self, name: str, manifest: Manifest, text: str, gate: Gate) -> Tracked:
        version = manifest.version
        before, scores = self._before.pop(name, None), histogram.empty(gate.calibration)
        if before is not None and (before.version, before.part) == (version, gate.part):
            try:
                detector = Detector.from_dict(before.detector, gate.calibration, self._alarm_images)
            except ValueError as error:
                logger.warning("the evidence of %s/%d begins anew: %s", name, version, error)
            else:
                size, key = min(self._window_size, detector.num_images), model_key(name, version, gate.part)
                # as it was when the evidence was last written: records that are new still come, once
                recent = read_recent(find_rings(self._rings), key, size, self._cursors)
                scores = histogram.continued(scores, before.scores)
                tally = Tally(detector.events)
                tally.go_on(before.series, before.counts)
                return Tracked(
                    manifest, text, gate, detector, recent, before.num_rejected, list(before.history), scores, tally
                )
        detector = Detector(gate.calibration, self._alarm_images)
        tally = Tally(detector.events)
        return Tracked(manifest, text, gate, detector, np.empty(0, RECORD), 0, [], scores, tally)

    def _read(self) -> NDArray[np.void]:
        parts = []
        for reader in find_rings(self._rings):
            records, next_sequence, num_missed = reader.since(self._cursors.get(reader.path.name, 1))
            self._cursors[reader.path.name] = next_sequence
            parts.append(records)
            if num_missed:
                logger.warning("%d scores were overwritten before they were read", num_missed)
        return in_order(parts)

    def _publish(self, now: float) -> None:
        reports = {name: tracked.report() for name, tracked in self._tracked.items()}
        if now >= self._next_point:
            self._next_point = now + POINT_SECONDS
            for name, tracked in self._tracked.items():
                tracked.history = [*tracked.history[1 - MAX_POINTS :], tracked.point(reports[name])]
        fleet = self._fleet
        models = {
            name: tracked.published(reports[name], fleet.reading(tracked.watched) if fleet else None)
            for name, tracked in self._tracked.items()
        }
        self._write(Published(cursors=self._cursors, models=models))
        if self._fleet is not None:
            self._fleet.say([tracked.said(reports[name]) for name, tracked in self._tracked.items()])

    def _begin_forgotten_anew(self) -> None:
        forgotten = self._fleet.forgotten() if self._fleet is not None else set()
        for name, tracked in self._tracked.items():
            if tracked.tally.series in forgotten:
                unknown = "the fleet's database does not know a series of %s: its %d images are counted there no more"
                logger.warning(unknown, name, tracked.tally.num_images)
                tracked.tally.begin_anew()

    def _write(self, content: Published) -> None:
        try:
            write_drift(self._database, content)
        except (DatabaseAway, StateNotWritten) as error:
            if self._is_writable:
                logger.error("cannot publish drift: %s; going on in memory", error)
            self._is_writable = False
        else:
            self._is_writable = True
