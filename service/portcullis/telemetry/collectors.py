"""Gauges that are read when Prometheus asks, and the text of all workers' metrics. Shows what it is handed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from portcullis.bundle.gate import Gate

_MODEL = ("model", "version")
MAX_CLASSES = 100  # with a series of their own


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
    is_default: bool = False
    """Whether it answers when no version is asked for."""
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
        default = GaugeMetricFamily(
            "portcullis_default_version", "The version that answers when none is asked for", labels=("model",)
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
            if served.is_default:
                default.add_metric((served.name,), served.version)
            info.add_metric((*labels, served.method, served.provider, served.asked), 1)
            fallback.add_metric((*labels, served.provider, served.asked), float(served.is_fallback))
            moved.add_metric(labels, served.moved_share)
            if served.shadow_shift is not None:
                shift.add_metric(labels, served.shadow_shift)
        return [threshold, of_class, probability, expected, default, info, fallback, moved, shift]


def expose(directory: Path, *collectors: Collector) -> bytes:
    """All workers' metrics as one text."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, str(directory))  # type: ignore[no-untyped-call]
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)
