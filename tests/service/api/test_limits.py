"""No request makes a worker hold more than its route's limit, whoever sends it and however long it goes on."""

import contextlib
import re
import select
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from portcullis.api.requests import MAX_CONTROL_BYTES
from portcullis.http.protocol import LINGER_BYTES, LINGER_SECONDS, MAX_HEADER_BYTES
from tests.hammer import PATIENCE_SECONDS
from tests.running import ADMIN_KEY, RunningService
from tests.service.conftest import PREDICT_KEY

MEBIBYTE = 1024 * 1024
POURED = 64 * MEBIBYTE
TAKEN = 40 * MEBIBYTE  # what is thrown away at the most, and what the kernel's buffers hold on the way
GROWTH = 24 * MEBIBYTE  # of a worker while it is poured over; a body that is read whole would be 64 MiB or twice that
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"


@pytest.fixture(scope="module")
def service(models, tmp_path_factory):
    """Keys for everything, limits of a mebibyte, one worker whose memory is looked at."""
    flags = ["--workers", "1", "--predict-keys", f"caller:{PREDICT_KEY}", "--review-enabled"]
    flags += ["--max-body-bytes", str(MEBIBYTE), "--max-batch-bytes", str(MEBIBYTE)]
    flags += ["--max-bodies-bytes", str(2 * MEBIBYTE), "--body-timeout-seconds", "600"]
    with RunningService(models, tmp_path_factory.mktemp("runtime"), *flags) as service:
        yield service


@pytest.fixture(scope="module")
def routes(service):
    """Every operation of the OpenAPI document with the route's names filled in, and one that does not exist."""
    document = httpx.get(f"{service.url}/openapi.json", timeout=30).json()
    filled = {"name": "tiny", "version": "1", "path": "a.png", "id": "0" * 16}
    found = [
        (method.upper(), re.sub(r"{(\w+)}", lambda match: filled[match[1]], path))
        for path, operations in document["paths"].items()
        for method in operations
    ]
    return [*found, ("POST", "/v1/nothing"), ("PUT", "/v1/predict"), ("POST", "/"), ("POST", "/docs/assets/x")]


def pour(url, method, path, key=None):
    """Send a chunked body of 64 MiB without listening, for as long as it is taken; bytes sent, and the status."""
    address = urlsplit(url)
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
    if key:
        head += f"authorization: Bearer {key}\r\n"
    received, sent = b"", 0
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(head.encode() + b"\r\n")
        with contextlib.suppress(ConnectionError):
            while sent < POURED:
                if select.select([connection], [], [], 0)[0]:
                    received += connection.recv(65536)
                connection.sendall(CHUNK)
                sent += len(CHUNK)
        with contextlib.suppress(ConnectionError):
            while not received:
                received = connection.recv(65536)
    return sent, int(received.split()[1])


@contextlib.contextmanager
def bounded_memory(service):
    """The worker's largest size within the block is not much above what it was before."""
    (worker,) = service.workers()
    Path(f"/proc/{worker}/clear_refs").write_text("5")  # the kernel begins its high-water mark anew
    before = _memory(worker, "VmRSS")
    yield
    assert service.workers() == [worker]
    assert _memory(worker, "VmHWM") - before < GROWTH


def _memory(process, field):
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[1])


def test_without_a_key_no_body_is_read_on_any_route(service, routes):
    with bounded_memory(service):
        for method, path in routes:
            sent, status = pour(service.url, method, path)
            is_open = path in ("/healthz", "/readyz", "/metrics") or path.startswith("/v2/health")
            expected = {200} if is_open else {401, 403, 404, 405}
            assert status in expected, (method, path, status)
            assert sent < TAKEN, (method, path, sent)


def test_with_every_key_a_body_is_read_up_to_its_limit_on_any_route(service, routes):
    """What only needs a key to act is left out: it would unload the model."""
    with bounded_memory(service):
        for method, path in routes:
            if method == "DELETE" or path.endswith(("/unload", "/promote")):
                continue
            sent, status = pour(service.url, method, path, ADMIN_KEY)
            reads = method == "PUT" or path.endswith(("infer", "predict", "predict/batch", "index", "load"))
            if reads and status not in (404, 405):
                assert status in (413, 415), (method, path, status)
            assert sent < TAKEN, (method, path, sent)


def test_a_length_that_is_announced_and_too_large_is_refused_before_a_byte_is_sent(service):
    address = urlsplit(service.url)
    for method, path, limit in [
        ("PUT", "/v1/models/tiny/gate", MEBIBYTE),
        ("POST", "/v1/predict", MEBIBYTE),
        ("POST", "/v2/models/tiny/infer", MEBIBYTE),
    ]:
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN_KEY}\r\n"
        with socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(f"{head}content-length: {limit + 1}\r\nexpect: 100-continue\r\n\r\n".encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 413 "), path


def begin(url, sent, announced=MEBIBYTE):
    """A connection on which so many bytes of an image were sent, and not the rest."""
    address = urlsplit(url)
    head = f"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\nauthorization: Bearer {PREDICT_KEY}\r\n"
    connection = socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SECONDS)
    connection.sendall(f"{head}content-length: {announced}\r\n\r\n".encode() + b"x" * sent)
    return connection


def ask(service, num_bytes):
    headers = {"authorization": f"Bearer {PREDICT_KEY}", "content-type": "image/png"}
    return httpx.post(f"{service.url}/v1/predict", content=b"x" * num_bytes, headers=headers, timeout=PATIENCE_SECONDS)


def wait_for(service, num_bytes, status):
    """Ask until the answer has this status: what was sent before may still be on its way."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (answer := ask(service, num_bytes)).status_code != status and time.monotonic() < deadline:
        time.sleep(0.05)
    assert answer.status_code == status
    return answer


def test_a_worker_holds_no_more_of_all_bodies_together_than_it_may(service):
    """Two mebibytes: each body is within its own limit, and nobody's is complete."""
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(begin(service.url, MEBIBYTE - 1000))
        refused = wait_for(service, 512 * 1024, 503)
        assert (refused.json()["error"]["code"], refused.headers["retry-after"]) == ("overloaded", "1")
        assert ask(service, 1000).status_code == 400  # a small body has its place at any time: read, and no image
    wait_for(service, 512 * 1024, 400)  # those have hung up
    for _ in range(8):  # and what was answered, or refused, is held no longer
        assert ask(service, 1024 * 1000).status_code == 400


def test_the_review_queue_and_the_gate_are_still_changed_by_a_body_within_the_limit(service):
    admin = {"authorization": f"Bearer {ADMIN_KEY}"}
    changed = httpx.put(f"{service.url}/v1/models/tiny/gate", json={"operating_point": "accept90"}, headers=admin)
    assert (changed.status_code, changed.json()["operating_point"]) == (200, "accept90")
    unknown = httpx.put(f"{service.url}/v1/review/{'0' * 16}", json={"label": "red"}, headers=admin)
    assert unknown.json()["error"]["code"] == "unknown_review_item"


def test_the_numbers_in_the_document_are_those_of_the_code():
    document = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    section = document.partition("\n## What a request may bring\n")[2].partition("\n## ")[0]
    assert f"| {MAX_HEADER_BYTES // 1024} KiB, `header_timeout_seconds` |" in section
    assert f"| {MAX_CONTROL_BYTES // MEBIBYTE} MiB |" in section
    assert f"| {LINGER_BYTES // MEBIBYTE} MiB and {LINGER_SECONDS:.0f} s," in section
