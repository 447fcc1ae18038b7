"""One model while its drift is followed: what was read of it, and what is told of it here and to the fleet."""

import json
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.gate import Gate
from portcullis.bundle.manifest import Manifest
from portcullis.drift import histogram
from portcullis.drift.evidence import Detector
from portcullis.drift.fleet import Said
from portcullis.drift.instances import report_of
from portcullis.drift.published import PublishedModel
from portcullis.drift.tally import Tally, watched
from portcullis.drift.window import Window, measure
from portcullis.schemas.drift import DriftPoint, DriftReport, FleetReading, ScoreHistogram
from portcullis.store.drift_counts import Told


@dataclass
class Tracked:
    """One model while it is followed."""

    manifest: Manifest
    text: str
    """The gate in force, as the state spells it."""
    gate: Gate
    detector: Detector
    recent: NDArray[np.void]  # the window's records, oldest first
    num_rejected: int
    history: list[DriftPoint]
    scores: ScoreHistogram
    tally: Tally

    @property
    def watched(self) -> str:
        return watched(self.manifest.name, self.manifest.version, self.gate.part, self.detector.events)

    def take(self, records: NDArray[np.void], window_size: int) -> None:
        self.detector.update(records["p_value"])
        self.tally.take(records["p_value"])
        self.num_rejected += int(np.count_nonzero(records["outcome"]))
        self.scores = histogram.plus(self.scores, records["score"])
        self.recent = np.concatenate([self.recent, records])[-window_size:]

    def report(self) -> DriftReport:
        recent = self.recent
        window = Window(recent["score"], recent["p_value"], recent["class_index"], recent["outcome"])
        return measure(window, self.manifest, self.gate.calibration, self.detector)

    def published(self, report: DriftReport, fleet: FleetReading | None) -> PublishedModel:
        """For this instance's own database."""
        return PublishedModel(
            version=self.manifest.version,
            part=self.gate.part,
            num_rejected=self.num_rejected,
            detector=self.detector.to_dict(),
            report=report,
            history=tuple(self.history),
            scores=self.scores,
            series=self.tally.series,
            counts=tuple(self.tally.counts.tolist()),
            fleet=fleet,
        )

    def said(self, report: DriftReport) -> Said:
        """For the fleet's, as totals and texts."""
        manifest, tally = self.manifest, self.tally
        told = Told(
            series=tally.series,
            model=manifest.name,
            watched=self.watched,
            bounds=json.dumps(tally.bounds),
            num_images=tally.num_images,
            counts=json.dumps(tally.counts.tolist()),
            body=report_of(manifest.version, self.gate.score, self.text, report).model_dump_json(),
        )
        return Said(told, tally.is_new)

    def point(self, report: DriftReport) -> DriftPoint:
        """This moment, for the history."""
        return DriftPoint(
            time=time.time(),
            num_images=report.num_images_since_reset,
            num_rejected=self.num_rejected,
            psi=report.psi,
            reject_ratio=report.reject_ratio,
            evidence_log10=report.evidence_log10,
        )
