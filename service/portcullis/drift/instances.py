"""What each instance of a fleet says of its own drift, and all of them together: for those who ask, not for alarms."""

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from portcullis.drift.window import psi, wilson_interval
from portcullis.errors import DatabaseAway
from portcullis.schemas.drift import DriftReport, FleetDrift, FleetReading, InstanceDrift
from portcullis.store.database import Database, Row
from portcullis.store.drift_counts import read_instances
from portcullis.store.followers import LIVING_SECONDS

LOOK_SECONDS = 1.0
"""However many ask, a worker asks the database so often."""
AWAY_SECONDS = 10.0
MAX_LISTED = 200


class InstanceReport(BaseModel):
    """One instance on one model, in its row for the fleet. What a newer service says beside is left out."""

    model_config = ConfigDict(frozen=True)

    version: int
    score: str
    gate: str
    num_images: int
    num_images_since_reset: int
    evidence_log10: float
    alarm: bool
    num_alarms_since_reset: int
    psi: float | None
    reject_ratio: float | None
    unsure_ratio: float | None
    p_value_shares: tuple[float, ...] | None


def report_of(version: int, score: str, gate: str, report: DriftReport) -> InstanceReport:
    """Of what the instance knows, what its fleet is told. Not the class mix: it may have thousands of classes."""
    shown = {name: getattr(report, name) for name in InstanceReport.model_fields if hasattr(report, name)}
    return InstanceReport(version=version, score=score, gate=gate, **shown)


class Seen(NamedTuple):
    """One instance as the database knows it."""

    instance: str
    report: InstanceReport
    beat_ago: float
    told_ago: float
    num_taken: int

    @property
    def is_living(self) -> bool:
        return abs(self.beat_ago) < LIVING_SECONDS


class InstanceReader:
    """Asks the fleet's database when somebody asks us; while it is away, what was known last stands and grows old."""

    def __init__(self, fleet: Database | None) -> None:
        self._fleet = fleet
        self._turn = asyncio.Lock()
        """However many ask, one thread waits for the database: the others have images to answer."""
        self._seen: dict[str, tuple[float, list[Seen]]] = {}
        """By model, and when that was."""
        self._away_until = -math.inf

    @property
    def is_in_a_fleet(self) -> bool:
        return self._fleet is not None

    async def read(self, model: str) -> list[Seen]:
        if self._fleet is None:
            return []
        async with self._turn:
            known, seen = self._seen.get(model, (-math.inf, []))
            now = time.monotonic()
            if now >= max(known + LOOK_SECONDS, self._away_until):
                try:
                    seen = await asyncio.to_thread(_ask, self._fleet, model)
                    known, self._seen[model] = now, (now, seen)
                except DatabaseAway:  # who asks next must not wait for it again
                    self._away_until = time.monotonic() + AWAY_SECONDS
        passed = time.monotonic() - known
        return [one._replace(beat_ago=one.beat_ago + passed, told_ago=one.told_ago + passed) for one in seen]


def _ask(fleet: Database, model: str) -> list[Seen]:
    with fleet.reading() as session:
        return _latest(read_instances(session, fleet.clock, model))


def _latest(rows: list[Row]) -> list[Seen]:
    """One an instance: a restart without its directory leaves a series behind that nobody goes on with."""
    seen: dict[str, Seen] = {}
    for row in rows:
        try:
            report = InstanceReport.model_validate_json(row["body"])
        except ValidationError:  # of another service
            continue
        beat_ago = math.inf if row["beat_ago"] is None else float(row["beat_ago"])
        seen[row["instance"]] = Seen(row["instance"], report, beat_ago, float(row["told_ago"]), row["num_taken"])
    return [seen[name] for name in sorted(seen)]


def together(
    seen: Sequence[Seen], reading: FleetReading | None, alarm_images: float, version: int, score: str
) -> FleetDrift:
    """The fleet as it is answered: its evidence, the windows of those that serve this version and score, each one."""
    living = [one for one in seen if one.is_living]
    alike = [one.report for one in living if (one.report.version, one.report.score) == (version, score)]
    return FleetDrift(
        **_evidence(reading, alarm_images),
        **_windows([report for report in alike if report.num_images]),
        num_instances=len(living),
        instances=tuple(map(_shown, _listed(seen))),
    )


def _evidence(reading: FleetReading | None, alarm_images: float) -> dict[str, Any]:
    """None where nobody has taken in anything of this version and score yet."""
    names = ("evidence_log10", "alarm", "threshold", "num_images_since_reset", "num_alarms_since_reset", "updated_by")
    if reading is None:
        return dict(zip(names, (0.0, False, alarm_images, 0, 0, None), strict=True), seconds_ago=None)
    return {name: getattr(reading, name) for name in names} | {"seconds_ago": reading.seconds_ago(time.time())}


def _windows(reports: Sequence[InstanceReport]) -> dict[str, Any]:
    """All windows as one: shares weighed by the images that they are of."""
    num_images = sum(report.num_images for report in reports)
    if not num_images:
        empty = dict.fromkeys(("psi", "reject_ratio", "unsure_ratio", "p_value_shares"))
        return empty | {"num_images": 0, "reject_ratio_interval": wilson_interval(0, 0)}

    def share(name: str) -> float:
        return math.fsum((getattr(report, name) or 0.0) * report.num_images for report in reports) / num_images

    buckets = [np.array(report.p_value_shares) * report.num_images for report in reports if report.p_value_shares]
    shares = tuple((np.sum(buckets, axis=0) / num_images).tolist())
    reject_ratio = share("reject_ratio")
    return {
        "num_images": num_images,
        "psi": psi(shares),
        "reject_ratio": reject_ratio,
        "reject_ratio_interval": wilson_interval(round(reject_ratio * num_images), num_images),
        "unsure_ratio": share("unsure_ratio"),
        "p_value_shares": shares,
    }


def _listed(seen: Sequence[Seen]) -> list[Seen]:
    most = sorted(seen, key=lambda one: one.report.evidence_log10, reverse=True)[:MAX_LISTED]
    return sorted(most, key=lambda one: one.instance)


def _shown(one: Seen) -> InstanceDrift:
    return InstanceDrift(
        instance=one.instance,
        is_living=one.is_living,
        seconds_ago=max(one.told_ago, 0.0),
        num_images_taken=one.num_taken,
        **one.report.model_dump(exclude={"p_value_shares"}),
    )
