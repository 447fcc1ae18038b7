"""Traces of requests for OpenTelemetry, an extra: off unless `otlp_endpoint` is set. The only user of opentelemetry.

A trace is made when its request is over, from times that were measured anyway: the path of a request knows nothing of
it. The length of a stage is exact; its place is reconstructed, the stages standing one after the other before the end.
"""

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from portcullis import __version__
from portcullis.errors import SettingsError
from portcullis.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

logger = logging.getLogger(__name__)

STAGES = ("decode", "queue", "inference")
TRACES_PATH = "/v1/traces"
EXPORT_TIMEOUT_SECONDS = 5
PARENT_HEADERS = (b"traceparent", b"tracestate")
_NANOSECONDS = 1_000_000_000


class Tracing:
    """Turns finished requests into spans."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("portcullis", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._trace = trace

    def record(
        self, headers: list[tuple[bytes, bytes]], fields: Mapping[str, Any], started: float, ended: float
    ) -> None:
        """One span for a request and one for each of its stages; `fields` are those of its log line."""
        try:
            self._record(self._parent(headers), fields, started, ended)
        except Exception:  # a trace must never cost an answer
            logger.exception("a trace could not be made")

    def close(self) -> None:
        """Send what waits, within the exporter's time limit."""
        self._provider.shutdown()

    def _record(self, parent: "Context", fields: Mapping[str, Any], started: float, ended: float) -> None:
        now = time.time_ns() - int((time.monotonic() - ended) * _NANOSECONDS)
        begin = now - int((ended - started) * _NANOSECONDS)
        span = self._tracer.start_span(
            f"{fields['method']} {fields['route']}",
            parent,
            kind=self._trace.SpanKind.SERVER,
            attributes=_attributes(fields),
            start_time=begin,
        )
        if span.is_recording():
            self._record_stages(self._trace.set_span_in_context(span), fields, begin, now)
        if fields["status"] >= 500:
            span.set_status(self._trace.StatusCode.ERROR, str(fields.get("error", "")))
        span.end(now)

    def _record_stages(self, parent: "Context", fields: Mapping[str, Any], begin: int, end: int) -> None:
        lengths = {stage: int(fields.get(f"{stage}_seconds", 0.0) * _NANOSECONDS) for stage in STAGES}
        at = max(begin, end - sum(lengths.values()))
        for stage, length in lengths.items():
            if f"{stage}_seconds" in fields:
                self._tracer.start_span(stage, parent, start_time=at).end(at + length)
                at += length

    def _parent(self, headers: list[tuple[bytes, bytes]]) -> "Context":
        carrier = {name.decode(): value.decode("latin-1") for name, value in headers if name in PARENT_HEADERS}
        return self._propagator.extract(carrier)


def _attributes(fields: Mapping[str, Any]) -> dict[str, Any]:
    attributes = {
        "http.request.method": fields["method"],
        "http.route": fields["route"],
        "http.response.status_code": fields["status"],
        "error.type": fields.get("error"),
    }
    ours = ("request_id", "model", "verdict", "p_value", "files")
    attributes |= {f"portcullis.{name}": fields.get(name) for name in ours}
    return {name: value for name, value in attributes.items() if value is not None}


def tracing_of(settings: Settings, slot: int) -> Tracing | None:
    """The tracing that the settings ask for; none costs nothing."""
    if settings.otlp_endpoint is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise SettingsError(
            "otlp_endpoint is set, but OpenTelemetry is not installed: pip install 'portcullis[tracing]'"
        ) from None
    endpoint = settings.otlp_endpoint.rstrip("/").removesuffix(TRACES_PATH) + TRACES_PATH
    processor = BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=EXPORT_TIMEOUT_SECONDS))
    return Tracing(provider_of(processor, settings.trace_sample, slot))


def provider_of(processor: "SpanProcessor", sample: float, slot: int) -> "TracerProvider":
    """Spans of this worker go to `processor`; a caller's own decision to trace is followed."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    resource = Resource.create(
        {"service.name": "portcullis", "service.version": __version__, "service.instance.id": str(slot)}
    )
    provider = TracerProvider(ParentBased(TraceIdRatioBased(sample)), resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider
