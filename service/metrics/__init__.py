"""Every Prometheus instrument of the service, declared once. The only user of prometheus_client.

Workers write to memory-mapped files in the runtime directory; any worker's `/metrics` adds them up. The file of a
worker belongs to its slot, not to its process id: a replaced worker goes on counting where the dead one stopped.
"""

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from service.drift import P_VALUE_BUCKETS, DriftReport
from service.drift_reader import PublishedModel
from service.score_histogram import ScoreHistogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it when it is imported
STAGES = ("decode", "queue", "inference", "total")
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PROBABILITIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
BATCH_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_MODEL = ("model", "version")


class Metrics:
    """The instruments; call sites cannot misspell them."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.http_requests = self._counter("http_requests", "HTTP requests answered", "route", "method", "status")
        self.errors = self._counter("errors", "Errors answered, by code", "code")
        self.shed = self._counter("shed", "Work refused or dropped before it cost an engine run", "reason")
        self.predictions = self._counter("predictions", "Images answered, by verdict", *_MODEL, "verdict")
        self.predicted_labels = self._counter(
            "predicted_labels", "Images answered, by predicted label", *_MODEL, "label"
        )
        self.score_p_value = self._histogram(
            "score_p_value", "Conformal p-value of the score; uniform while nothing drifts", P_VALUE_BUCKETS, *_MODEL
        )
        self.probability = self._histogram(
            "probability", "Calibrated probability of the answered class", PROBABILITIES, *_MODEL
        )
        self.stage_seconds = self._histogram("stage_seconds", "Time of one image in a stage", SECONDS, "stage")
        self.batch_size = self._histogram("batch_size", "Images in one engine run", BATCH_SIZES, *_MODEL)
        self.queue_depth = self._gauge("queue_depth", "Images that wait for the engine", "livesum", *_MODEL)
        self.queue_capacity = self._gauge("queue_capacity", "Images that may wait for the engine", "livesum", *_MODEL)
        self.connections = self._gauge("connections", "Open client connections", "livesum")
        self.model_swaps = self._counter("model_swaps", "Changes of what is served, by result", "model", "result")
        self.shadow = self._counter("shadow", "Shadowed images, by how the candidate compared", *_MODEL, "result")
        self.shadow_seconds = self._histogram("shadow_seconds", "Engine time of a shadowed image", SECONDS, *_MODEL)
        self.workers_ready = self._gauge("workers_ready", "Workers that can answer", "livesum")
        self.build_info = self._gauge("build_info", "1, with the version of the service", "livemax", "version")
        self.review_items = self._counter("review_items", "Images offered to the review queue, by result", "result")
        self.review_failed = self._gauge(
            "review_failed", "1 while the review queue cannot keep images: a full disk or a broken store", "livemax"
        )

    def no_queue(self, name: str, version: int) -> None:
        """A version has left, and its queue with it."""
        self.queue_depth.labels(name, str(version)).set(0)
        self.queue_capacity.labels(name, str(version)).set(0)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, namespace="portcullis", registry=self.registry)

    def _gauge(self, name: str, text: str, mode: str, *labels: str) -> Gauge:
        return Gauge(
            name,
            text,
            labels,
            namespace="portcullis",
            registry=self.registry,
            multiprocess_mode=mode,  # type: ignore[arg-type]
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, labels, namespace="portcullis", registry=self.registry, buckets=buckets)


def observer(histogram: Histogram) -> Callable[[float], None]:
    """`observe` of one labelled histogram for the path of a request: finds its bucket by halves, not one by one.

    NaN is left out: it belongs to no bucket, and one would make the sum NaN for ever.
    """
    bounds, add = histogram._upper_bounds, histogram._sum.inc
    count = [bucket.inc for bucket in histogram._buckets]

    def observe(amount: float) -> None:
        if amount == amount:
            add(amount)
            count[bisect_left(bounds, amount)](1)

    return observe


class DriftCollector(Collector):
    """Drift and scores, read when asked from what the supervisor last computed: a model that is gone, goes at once."""

    def __init__(self, read: Callable[[], Iterable[tuple[str, PublishedModel]]]) -> None:
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
                ("drift_window_images", "Images in the window"),
            )
        }
        quantiles = GaugeMetricFamily(
            "portcullis_score_quantile", "Quantile of the window's scores", labels=(*_MODEL, "level")
        )
        scores = HistogramMetricFamily(
            "portcullis_score", "Score of an image, in buckets around the version's calibration scores", labels=_MODEL
        )
        for model, published in self._read():
            report, labels = published.report, (model, str(published.version))
            for name, value in _drift_values(report).items():
                if value is not None:
                    families[name].add_metric(labels, value)
            for quantile, score in report.score_quantiles.items():
                quantiles.add_metric((*labels, str(quantile)), score)
            if published.scores is not None:
                _add_histogram(scores, labels, published.scores)
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
        "drift_window_images": float(report.num_images),
    }


@dataclass(frozen=True)
class ServedVersion:
    """One version as it is served, for the gauges that say so."""

    name: str
    version: int
    method: str
    provider: str
    asked: str
    threshold: float
    expected_rejected_share: float
    shadow_shift: float | None = None


class ServedCollector(Collector):
    """Gauges of what is served, read from the worker that answers: a version that is gone, goes at once."""

    def __init__(self, read: Callable[[], Iterable[ServedVersion]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        threshold = GaugeMetricFamily("portcullis_gate_threshold", "Scores below it are rejected", labels=_MODEL)
        expected = GaugeMetricFamily(
            "portcullis_gate_expected_rejected_share",
            "Share of familiar images that the gate rejects at the most",
            labels=_MODEL,
        )
        info = GaugeMetricFamily(
            "portcullis_model_info",
            "1 for each version served, with what it runs on",
            labels=(*_MODEL, "method", "provider", "asked"),
        )
        shift = GaugeMetricFamily(
            "portcullis_shadow_score_shift",
            "Mean p-value of the candidate less that of the served version",
            labels=_MODEL,
        )
        for served in self._read():
            labels = (served.name, str(served.version))
            threshold.add_metric(labels, served.threshold)
            expected.add_metric(labels, served.expected_rejected_share)
            info.add_metric((*labels, served.method, served.provider, served.asked), 1)
            if served.shadow_shift is not None:
                shift.add_metric(labels, served.shadow_shift)
        return [threshold, expected, info, shift]


def expose(directory: Path, *collectors: Collector) -> bytes:
    """All workers' metrics as one text."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, str(directory))  # type: ignore[no-untyped-call]
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)
