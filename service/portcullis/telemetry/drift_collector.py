"""Drift of this instance and of its fleet, and the histogram of scores, read when Prometheus asks."""

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from portcullis.schemas.drift import DriftReport, FleetReading, ScoreHistogram

_MODEL = ("model", "version")


@dataclass(frozen=True)
class DriftReading:
    """What was last computed of one model's traffic."""

    model: str
    version: int
    report: DriftReport
    scores: ScoreHistogram | None
    fleet: FleetReading | None = None


class DriftCollector(Collector):
    """Drift and scores, read when asked from what the supervisor last computed: a model that is gone, goes at once."""

    def __init__(self, read: Callable[[], Iterable[DriftReading]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        families = {
            name: GaugeMetricFamily(f"portcullis_{name}", text, labels=_MODEL)
            for name, text in (
                ("drift_psi", "Population stability index of the window's p-values against uniform"),
                ("drift_ks", "Kolmogorov-Smirnov distance of the window's scores from the calibration scores"),
                (
                    "drift_evidence_log10",
                    "Sequential evidence of drift, log10; an alarm at log10 of drift_alarm_images",
                ),
                ("drift_alarm", "1 while the evidence of drift stands"),
                ("drift_alarms_since_reset", "Alarms since the version was first served; one may come and go unseen"),
                ("drift_class_mix_distance", "Total variation distance of the window's class mix from the reference"),
                ("reject_ratio", "Share of the window's images that were rejected"),
                ("unsure_ratio", "Share of the window's images that were rejected as unsure"),
                ("drift_window_images", "Images in the window"),
                (
                    "fleet_drift_evidence_log10",
                    "Evidence of drift over all instances of the fleet; absent on one machine",
                ),
                ("fleet_drift_alarm", "1 while the fleet's evidence of drift stands"),
                ("fleet_drift_alarms_since_reset", "Alarms of the fleet since its evidence of the version began"),
                ("fleet_drift_images", "Images of all instances in the fleet's evidence"),
                ("fleet_drift_age_seconds", "Time since some instance brought the fleet's evidence up to date"),
            )
        }
        quantiles = GaugeMetricFamily(
            "portcullis_score_quantile", "Quantile of the window's scores", labels=(*_MODEL, "level")
        )
        scores = HistogramMetricFamily(
            "portcullis_score", "Score of an image, in buckets around the version's calibration scores", labels=_MODEL
        )
        for reading in self._read():
            report, labels = reading.report, (reading.model, str(reading.version))
            for name, value in (_drift_values(report) | _fleet_values(reading.fleet)).items():
                if value is not None:
                    families[name].add_metric(labels, value)
            for quantile, score in report.score_quantiles.items():
                quantiles.add_metric((*labels, str(quantile)), score)
            if reading.scores is not None:
                _add_histogram(scores, labels, reading.scores)
        return [*families.values(), quantiles, scores]


def _add_histogram(family: HistogramMetricFamily, labels: tuple[str, str], scores: ScoreHistogram) -> None:
    """Buckets, count and sum. The library leaves out the last two where an edge is negative, as OpenMetrics wants a sum
    that only grows; the text format that we write has no such rule, and the count does grow."""
    cumulative = list(itertools.accumulate(scores.counts))
    edges = [*map(floatToGoString, scores.edges), "+Inf"]
    family.add_metric(labels, list(zip(edges, map(float, cumulative), strict=True)), None)
    named = dict(zip(_MODEL, labels, strict=True))
    family.add_sample("portcullis_score_count", named, float(cumulative[-1]))
    family.add_sample("portcullis_score_sum", named, scores.sum)


def _drift_values(report: DriftReport) -> dict[str, float | None]:
    return {
        "drift_psi": report.psi,
        "drift_ks": report.ks,
        "drift_evidence_log10": report.evidence_log10,
        "drift_alarm": float(report.alarm),
        "drift_alarms_since_reset": float(report.num_alarms_since_reset),
        "drift_class_mix_distance": report.class_mix_distance,
        "reject_ratio": report.reject_ratio,
        "unsure_ratio": report.unsure_ratio,
        "drift_window_images": float(report.num_images),
    }


def _fleet_values(fleet: FleetReading | None) -> dict[str, float | None]:
    if fleet is None:
        return {}
    return {
        "fleet_drift_evidence_log10": fleet.evidence_log10,
        "fleet_drift_alarm": float(fleet.alarm),
        "fleet_drift_alarms_since_reset": float(fleet.num_alarms_since_reset),
        "fleet_drift_images": float(fleet.num_images_since_reset),
        "fleet_drift_age_seconds": fleet.seconds_ago(time.time()),
    }
