"""Log lines: one a request with verdict and timings, sampled above a rate; never a payload, never a key."""

import base64
import io
import json
import logging
import re

import httpx
import pytest

from portcullis.telemetry.logs import JsonFormatter, RequestLog
from tests.hammer import eventually
from tests.running import ADMIN_KEY
from tests.service.conftest import PREDICT_KEY
from tests.service.pictures import BROKEN, RED, STRANGE


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr("portcullis.telemetry.logs.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def written(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def offer(log, fields):
    if log.is_due():
        log.write(fields)


def test_lines_above_the_rate_are_left_out_and_counted_in_the_next(clock):
    stream = io.StringIO()
    log = RequestLog(5, "json", stream)
    for number in range(20):
        offer(log, {"number": number})
    clock.now += 0.2  # time for one more line
    offer(log, {"number": 20})
    offer(log, {"number": 21})
    clock.now += 10
    offer(log, {"number": 22})
    offer(log, {"number": 23})
    lines = written(stream)
    assert [line["number"] for line in lines] == [0, 1, 2, 3, 4, 20, 22, 23]
    assert {line["number"]: line["left_out"] for line in lines if "left_out" in line} == {20: 15, 22: 1}


def test_at_a_steady_pace_below_the_rate_nothing_is_left_out(clock):
    stream = io.StringIO()
    log = RequestLog(0.5, "json", stream)
    for _ in range(10):
        clock.now += 2.0
        offer(log, {})
    assert len(written(stream)) == 10


def test_a_rate_of_zero_writes_nothing(clock):
    stream = io.StringIO()
    log = RequestLog(0, "json", stream)
    for _ in range(5):
        clock.now += 100
        offer(log, {})
    assert stream.getvalue() == ""


def test_a_closed_stream_costs_no_answer(clock):
    stream = io.StringIO()
    log = RequestLog(5, "json", stream)
    stream.close()
    offer(log, {"a": 1})
    offer(log, {"a": 2})


def test_text_lines_are_for_people(clock):
    stream = io.StringIO()
    offer(RequestLog(5, "text", stream), {"event": "request", "status": 200})
    assert stream.getvalue() == "event=request status=200\n"


def test_an_event_is_one_json_line_even_with_a_trace():
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.LogRecord("service.x", logging.ERROR, "", 0, "failed %s", ("so",), (type(error), error, None))
    line = JsonFormatter().format(record)
    entry = json.loads(line)
    assert "\n" not in line
    assert (entry["level"], entry["logger"], entry["message"]) == ("error", "service.x", "failed so")
    assert "ValueError: two" in entry["trace"]


# -- of a real service -----------------------------------------------------------------------------------------------


def line_of(service, request_id):
    """The log line of one request, once it is there."""
    needle = f'"request_id":"{request_id}"'
    return json.loads(eventually(lambda: next((line for line in service.lines if needle in line), None)))


def test_a_request_leaves_one_line_with_verdict_and_timings(running_service):
    response = httpx.post(f"{running_service.url}/v1/predict", content=STRANGE, headers={"x-request-id": "line-1"})
    entry = line_of(running_service, "line-1")
    assert (entry["event"], entry["method"], entry["route"], entry["status"]) == ("request", "POST", "/v1/predict", 200)
    assert (entry["model"], entry["verdict"]) == ("tiny/1", "reject")
    assert entry["p_value"] == pytest.approx(response.json()["p_value"], abs=1e-5)
    stages = [entry[f"{stage}_seconds"] for stage in ("decode", "queue", "inference")]
    assert all(seconds >= 0 for seconds in stages) and sum(stages) <= entry["seconds"]
    assert sum('"line-1"' in line for line in running_service.lines) == 1


def test_a_refusal_leaves_its_code(running_service):
    httpx.post(f"{running_service.url}/v1/predict", content=BROKEN, headers={"x-request-id": "line-2"})
    assert line_of(running_service, "line-2")["error"] == "bad_image"


def test_no_payload_no_key_and_no_header_is_written_anywhere(reviewed_service):
    """Requests with telling marks in every place; then every byte that the service has written is searched."""
    marks = ["mark-in-query", "mark-in-agent", "mark-in-cookie", "mark-in-file-name", "mark-in-field", "wrong-secret"]
    url = f"{reviewed_service.url}/v1/predict"
    headers = {"x-api-key": PREDICT_KEY, "user-agent": "mark-in-agent", "cookie": "session=mark-in-cookie"}
    marked = STRANGE + b"mark-in-payload"  # bytes behind the end of a PNG are no harm
    with httpx.Client(headers=headers) as client:
        client.post(url, content=marked)
        client.post(url, files={"mark-in-field": ("mark-in-file-name.png", marked)})
        client.post(url, json={"image": base64.b64encode(marked).decode()})
        client.post(f"{url}/batch", files=[("mark-in-field", ("mark-in-file-name.png", marked))])
        client.post(url, content=b"mark-in-payload")
        client.post(url, params={"model": "mark-in-query"}, content=RED)
        client.post(url, content=RED, headers={"x-api-key": "wrong-secret"})
        client.post(url, content=RED, headers={"x-request-id": "last-of-all"})
    line_of(reviewed_service, "last-of-all")
    admin = {"authorization": f"Bearer {ADMIN_KEY}"}
    eventually(lambda: _kept(reviewed_service.url, admin, marked))
    log = "\n".join(reviewed_service.lines).encode()
    files = {file: file.read_bytes() for file in reviewed_service.runtime.rglob("*") if file.is_file()}
    images = [content for file, content in files.items() if file.parent.name == "images"]
    others = b"".join(content for file, content in files.items() if file.parent.name != "images")
    assert marked in images  # the very image is what the review queue is for; it is nowhere else
    for secret in (*marks, PREDICT_KEY, ADMIN_KEY):
        assert secret.encode() not in log + others + b"".join(images), secret
    for part in (b"mark-in-payload", base64.b64encode(marked)[:40]):
        assert part not in log + others
    assert not re.search(rb"\\x89PNG|IHDR", log + others)


def _kept(url, headers, content):
    items = httpx.get(f"{url}/v1/review", params={"limit": 500}, headers=headers).json()["items"]
    return any(httpx.get(f"{url}/v1/review/{i['id']}/image", headers=headers).content == content for i in items)
