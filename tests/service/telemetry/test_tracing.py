"""Traces through the SDK's own exporters: spans in memory, and OTLP bytes at a real socket."""

import http.server
import sys
import threading
from typing import ClassVar

import httpx
import pytest

from portcullis.errors import SettingsError
from portcullis.settings import Settings
from portcullis.telemetry.tracing import Tracing, provider_of, tracing_of
from tests.running import RunningService
from tests.service.pictures import STRANGE

sdk = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = [(b"traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode()), (b"host", b"x")]
FIELDS = {
    "method": "POST", "route": "/v1/predict", "status": 200, "request_id": "r1", "model": "tiny/1", "verdict": "reject",
    "p_value": 0.001, "decode_seconds": 0.010, "queue_seconds": 0.020, "inference_seconds": 0.030,
}  # fmt: skip


def tracing_to_memory(sample=1.0):
    exporter = memory.InMemorySpanExporter()
    return Tracing(provider_of(sdk.SimpleSpanProcessor(exporter), sample, slot=0)), exporter


def test_a_request_is_a_span_with_a_child_for_each_stage():
    tracing, exporter = tracing_to_memory()
    tracing.record([], FIELDS, started=100.0, ended=100.1)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    request = spans.pop("POST /v1/predict")
    assert set(spans) == {"decode", "queue", "inference"}
    assert all(span.parent.span_id == request.context.span_id for span in spans.values())
    lengths = {name: (span.end_time - span.start_time) / 1e9 for name, span in spans.items()}
    assert lengths == pytest.approx({"decode": 0.01, "queue": 0.02, "inference": 0.03})
    assert (request.end_time - request.start_time) / 1e9 == pytest.approx(0.1)
    assert request.start_time <= spans["decode"].start_time and spans["inference"].end_time <= request.end_time
    assert spans["decode"].end_time == spans["queue"].start_time
    assert spans["queue"].end_time == spans["inference"].start_time
    assert request.attributes["portcullis.verdict"] == "reject"
    assert request.attributes["http.response.status_code"] == 200
    assert request.resource.attributes["service.name"] == "portcullis"


def test_the_callers_trace_is_continued_and_its_decision_followed():
    tracing, exporter = tracing_to_memory(sample=0.0)
    tracing.record(PARENT, FIELDS, 1.0, 1.1)
    tracing.record([], FIELDS, 1.0, 1.1)  # nobody asked for this one, and the sample is nothing
    assert {format(span.context.trace_id, "032x") for span in exporter.get_finished_spans()} == {TRACE}


def test_a_failure_of_ours_marks_the_span():
    tracing, exporter = tracing_to_memory()
    for status in (400, 503):
        tracing.record([], {"method": "GET", "route": "/x", "status": status, "error": "overloaded"}, 1.0, 1.1)
    assert [span.status.is_ok for span in exporter.get_finished_spans()] == [True, False]


def test_a_broken_exporter_costs_no_answer(caplog):
    tracing, _ = tracing_to_memory()
    tracing.record([], {"no": "method"}, 1.0, 1.1)
    assert "a trace could not be made" in caplog.text


def test_it_is_off_without_an_endpoint_and_refused_without_the_library(monkeypatch):
    assert tracing_of(Settings(), 0) is None
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsError, match=r"portcullis\[tracing\]"):
        tracing_of(Settings(otlp_endpoint="http://collector:4318"), 0)


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes OTLP as a collector would."""

    spans: ClassVar[list] = []
    arrived = threading.Event()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        request = trace_service.ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                Collector.spans += [(self.path, span) for span in scope.spans]
        self.send_response(200)
        self.end_headers()
        Collector.arrived.set()

    def log_message(self, *arguments):
        pass


@pytest.mark.slow
def test_a_service_sends_its_traces_to_a_collector(models, tmp_path):
    server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    with RunningService(models, tmp_path, "--otlp-endpoint", endpoint, "--workers", "1") as service:
        headers = {"traceparent": PARENT[0][1].decode()}
        assert httpx.post(f"{service.url}/v1/predict", content=STRANGE, headers=headers).json()["verdict"] == "reject"
    assert Collector.arrived.wait(10)  # at the latest when the worker ends
    server.shutdown()
    server.server_close()
    names = {span.name for path, span in Collector.spans if span.trace_id.hex() == TRACE and path == "/v1/traces"}
    assert names == {"POST /v1/predict", "decode", "queue", "inference"}
