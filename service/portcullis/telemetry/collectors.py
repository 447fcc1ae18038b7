"""Gauges that are read when Prometheus asks, and the text of all workers' metrics. Shows what it is handed."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from portcullis.bundle.gate import Gate
from portcullis.schemas.drift import DriftReport, ScoreHistogram

_MODEL = ("model", "version")
MAX_CLASSES = 100  # with a series of their own


@dataclass(frozen=True)
class DriftReading:
    """What was last computed of one model's traffic."""

    model: str
    version: int
    report: DriftReport
    scores: ScoreHistogram | None


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
            for name, value in _drift_values(report).items():
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


@dataclass(frozen=True)
class StoreReading:
    """How the databases of an instance are."""

    revision: int
    is_connected: bool | None
    """To the fleet's; None where it is part of none."""
    num_damaged: int
    is_document_refused: bool | None
    is_source_reached: bool | None = None
    """None where no document says what is served."""


class StoreCollector(Collector):
    """The revision that is followed, and what a person should know of the databases."""

    def __init__(self, read: Callable[[], Iterable[StoreReading]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        families = {
            name: GaugeMetricFamily(f"portcullis_{name}", text, labels=())
            for name, text in (
                ("state_revision", "Revision of the desired state that this worker follows; alike in a whole fleet"),
                ("database_connected", "1 while the fleet's database is reached; absent on one machine"),
                ("database_damaged_files", "Damaged files of the database that were moved aside and lie there still"),
                ("state_document_refused", "1 while the document that says what is served cannot be followed"),
                ("source_reached", "1 while the URL that bundles come from is reached; absent for a directory"),
            )
        }
        for reading in self._read():
            values = {
                "state_revision": reading.revision,
                "database_connected": reading.is_connected,
                "database_damaged_files": reading.num_damaged,
                "state_document_refused": reading.is_document_refused,
                "source_reached": reading.is_source_reached,
            }
            for name, value in values.items():
                if value is not None:
                    families[name].add_metric((), float(value))
        return list(families.values())


@dataclass(frozen=True)
class ServedVersion:
    """One version as it is served, for the gauges that say so."""

    name: str
    version: int
    method: str
    provider: str
    asked: str
    gate: Gate
    labels: tuple[str, ...]
    is_fallback: bool = False
    moved_share: float = 0.0
    shadow_shift: float | None = None


class ServedCollector(Collector):
    """Gauges of what is served, read from the worker that answers: a version that is gone, goes at once."""

    def __init__(self, read: Callable[[], Iterable[ServedVersion]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        threshold = GaugeMetricFamily(
            "portcullis_gate_threshold",
            "Scores below it are rejected; absent where the gate is by class",
            labels=_MODEL,
        )
        of_class = GaugeMetricFamily(
            "portcullis_gate_class_threshold",
            f"Scores below it are rejected in images answered so, where the gate is by class and has at most "
            f"{MAX_CLASSES} of them",
            labels=(*_MODEL, "label"),
        )
        probability = GaugeMetricFamily(
            "portcullis_gate_min_probability", "Answers of a lower probability are rejected as unsure", labels=_MODEL
        )
        expected = GaugeMetricFamily(
            "portcullis_gate_expected_rejected_share",
            "Share of familiar (in-distribution) images that the gate rejects, at the most or as counted",
            labels=_MODEL,
        )
        info = GaugeMetricFamily(
            "portcullis_model_info",
            "1 for each version served, with what it runs on",
            labels=(*_MODEL, "method", "provider", "asked"),
        )
        fallback = GaugeMetricFamily(
            "portcullis_provider_fallback",
            "1 where a provider that was preferred did not start and another runs in its place",
            labels=(*_MODEL, "provider", "asked"),
        )
        moved = GaugeMetricFamily(
            "portcullis_device_moved_share",
            "By how much the gate rejects more or fewer familiar images on this device, at the most, by the self-test",
            labels=_MODEL,
        )
        shift = GaugeMetricFamily(
            "portcullis_shadow_score_shift",
            "Mean p-value of the candidate less that of the served version",
            labels=_MODEL,
        )
        for served in self._read():
            labels = (served.name, str(served.version))
            if served.gate.by_class is None:
                threshold.add_metric(labels, served.gate.threshold)
            elif len(served.labels) <= MAX_CLASSES:
                for label, one in zip(served.labels, served.gate.by_class, strict=True):
                    of_class.add_metric((*labels, label), one.threshold)
            probability.add_metric(labels, served.gate.min_probability)
            expected.add_metric(labels, served.gate.rejected_share)
            info.add_metric((*labels, served.method, served.provider, served.asked), 1)
            fallback.add_metric((*labels, served.provider, served.asked), float(served.is_fallback))
            moved.add_metric(labels, served.moved_share)
            if served.shadow_shift is not None:
                shift.add_metric(labels, served.shadow_shift)
        return [threshold, of_class, probability, expected, info, fallback, moved, shift]


def expose(directory: Path, *collectors: Collector) -> bytes:
    """All workers' metrics as one text."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, str(directory))  # type: ignore[no-untyped-call]
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)
