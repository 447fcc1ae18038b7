"""Several workers that behave as one service: gate, metrics, limits, signals. Real processes throughout."""

import concurrent.futures
import itertools
import math
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import time
from types import SimpleNamespace

import httpx
import pytest

from portcullis.errors import SettingsError
from portcullis.processes.sockets import address_of, bind
from tests import tiny
from tests.hammer import PATIENCE_SECONDS, eventually
from tests.running import ADMIN_KEY, RunningService
from tests.sabotage import audit_of, has_ended, num_behind
from tests.service.pictures import RED, STRANGE

pytestmark = pytest.mark.slow
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}


def thresholds(url, count=12):
    """The threshold as fresh connections, and so both workers, see it."""
    return {httpx.post(f"{url}/v1/predict", content=RED, timeout=30).json()["threshold"] for _ in range(count)}


def samples(url, name):
    """Samples of one metric, by their labels."""
    lines = httpx.get(f"{url}/metrics", timeout=30).text.splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)}


@pytest.fixture(scope="module")
def service(models, tmp_path_factory):
    limits = ["--max-body-bytes", "200000", "--max-pixels", "1000000", "--max-batch-files", "3"]
    with RunningService(models, tmp_path_factory.mktemp("runtime"), *limits) as service:
        yield service


@pytest.fixture(scope="module")
def impatient(models, tmp_path_factory):
    """Short clocks on connections, and keys; not for tests that a machine which stands still would disturb then."""
    clocks = ["--header-timeout-seconds", "1", "--body-timeout-seconds", "1", "--keep-alive-seconds", "2"]
    keys = ["--predict-keys", "a:first-secret,b:second-secret"]
    with RunningService(models, tmp_path_factory.mktemp("impatient"), *clocks, *keys, "--workers", "1") as service:
        yield service


def put_gate(service, **gate):
    """Change the gate; the threshold in force, and how long the call took."""
    started = time.monotonic()
    answer = httpx.put(f"{service.url}/v1/models/tiny/gate", json=gate, headers=ADMIN, timeout=30)
    return answer.raise_for_status().json()["threshold"], time.monotonic() - started


def test_a_changed_gate_is_every_workers_when_the_call_returns_and_is_audited(service):
    before = thresholds(service.url)
    expected, _ = put_gate(service, operating_point="accept80")
    assert {expected} != before
    assert thresholds(service.url) == {expected}
    entry = audit_of(service.runtime)[-1]
    assert entry.items() >= {"key": "tester", "action": "gate", "before": "accept95", "after": "accept80"}.items()
    eventually(lambda: set(samples(service.url, "portcullis_gate_threshold").values()) == {expected})
    put_gate(service, threshold=-4.2)
    assert thresholds(service.url) == {-4.2}
    put_gate(service, operating_point="accept95")
    assert thresholds(service.url) == before


def test_a_changed_gate_reaches_every_worker_within_a_second(service):
    """The call waits for all workers. The quickest of many counts: the machine may stand still during some."""
    points = itertools.cycle(["accept80", "accept95"])
    eventually(lambda: put_gate(service, operating_point=next(points))[1] < 1)
    put_gate(service, operating_point="accept95")


def test_a_worker_that_cannot_read_a_change_when_it_comes_follows_as_soon_as_it_can(service):
    """Out of file descriptors for a while: it opens no file, and takes no connection, so the other makes the change."""
    worker = service.workers()[0]
    enough = resource.prlimit(worker, resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    expected, _ = put_gate(service, operating_point="accept80")  # gives the other worker time to look, and fail
    resource.prlimit(worker, resource.RLIMIT_NOFILE, enough)
    eventually(lambda: num_behind(service.runtime) == 0)
    assert thresholds(service.url) == {expected}
    put_gate(service, operating_point="accept95")


def test_counters_add_up_over_workers_and_promtool_approves(service):
    before = samples(service.url, "portcullis_predictions_total")
    with httpx.Client(base_url=service.url) as client:
        for body in [RED] * 30 + [STRANGE] * 10:
            client.post("/v1/predict", content=body)
            client.get("/healthz", headers={"connection": "close"})
    after = samples(service.url, "portcullis_predictions_total")
    grown = {labels: after[labels] - before.get(labels, 0) for labels in after}
    label = 'portcullis_predictions_total{model="tiny",verdict="%s",version="1"}'
    assert grown == {label % "accept": 30, label % "reject": 10}
    count = samples(service.url, "portcullis_score_p_value_count")
    assert count['portcullis_score_p_value_count{model="tiny",version="1"}'] == sum(after.values())
    if shutil.which("promtool") is None:
        pytest.skip("promtool (Debian's prometheus) is not installed")
    text = httpx.get(f"{service.url}/metrics").content
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_too_many_bytes_pixels_or_files_are_413(service):
    too_long = httpx.post(f"{service.url}/v1/predict", content=b"x" * 300_000)
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (413, "payload_too_large")

    def chunks():
        for _ in range(30):
            yield b"x" * 10_000

    unannounced = httpx.post(f"{service.url}/v1/predict", content=chunks())
    assert unannounced.json()["error"]["code"] == "payload_too_large"
    from tests.service.bundle.test_preprocess import png_that_claims

    bomb = httpx.post(f"{service.url}/v1/predict", content=png_that_claims(20_000, 20_000))
    assert (bomb.status_code, bomb.json()["error"]["code"]) == (413, "image_too_large")
    files = [("f", ("large", b"x" * 200_001)), ("f", ("red", RED))]
    entries = httpx.post(f"{service.url}/v1/predict/batch", files=files).json()["results"]
    assert [entry["error"] and entry["error"]["code"] for entry in entries] == ["payload_too_large", None]
    many = httpx.post(f"{service.url}/v1/predict/batch", files=[("f", (str(i), RED)) for i in range(4)])
    assert (many.status_code, many.json()["error"]["code"]) == (413, "payload_too_large")


def drip(connection, data):
    """Send a byte at a time until the server says something; what it says."""
    for position in range(len(data)):
        if select.select([connection], [], [], 0.1)[0]:  # never send to who has hung up: the answer would be lost
            break
        connection.send(data[position : position + 1])
    return connection.recv(4096)


@pytest.mark.parametrize(
    ("at_once", "in_drips"),
    [
        (b"POST /v1/predict HTTP/1.1\r\nHost: x\r\n", b"X: y\r\n" * 100),
        (
            b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nX-API-Key: first-secret\r\nContent-Length: 1000\r\n\r\n",
            b"x" * 900,
        ),
    ],
    ids=["headers", "body"],
)
def test_a_client_that_sends_a_byte_at_a_time_does_not_hold_a_slot_for_ever(impatient, at_once, in_drips):
    host, port = impatient.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(at_once)
        received = drip(connection, in_drips)  # all of it would take a minute or more; the limit is a second
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"request_timeout"' in received


def test_what_is_not_http_is_refused_in_the_same_shape(service):
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        received = connection.recv(4096)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in received


def test_an_idle_connection_is_closed(impatient):
    host, port = impatient.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b"".join(iter(lambda: connection.recv(4096), b""))  # until the server closes
    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.count(b"HTTP/1.1") == 1


def test_a_dead_worker_is_replaced_its_counts_stay_and_its_gauges_go(service):
    for _ in range(20):
        httpx.post(f"{service.url}/v1/predict", content=RED)
    counted = samples(service.url, "portcullis_predictions_total")
    victims = service.workers()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(service.workers()) == 2 and not set(service.workers()) & set(victims))
    eventually(lambda: httpx.get(f"{service.url}/readyz", timeout=30).status_code == 200)
    assert samples(service.url, "portcullis_predictions_total") == counted
    eventually(lambda: samples(service.url, "portcullis_workers_ready") == {"portcullis_workers_ready": 2.0})


def test_the_gate_survives_a_restart_and_sigterm_loses_no_request(models, tmp_path):
    with RunningService(models, tmp_path) as service:
        changed = httpx.put(f"{service.url}/v1/models/tiny/gate", json={"threshold": -4.5}, headers=ADMIN)
        assert changed.status_code == 200

        def ask():
            """Ask until the service refuses connections; every request that was taken must be answered."""
            answered = 0
            with httpx.Client(base_url=service.url, timeout=30) as client:
                while True:
                    try:
                        response = client.post("/v1/predict", content=RED)
                    except httpx.ConnectError:
                        return answered, None
                    except httpx.TransportError as error:
                        return answered, error
                    if response.status_code not in (200, 503):
                        return answered, response.text
                    answered += response.status_code == 200

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            clients = [pool.submit(ask) for _ in range(8)]
            eventually(lambda: sum(samples(service.url, "portcullis_predictions_total").values()) > 50)
            assert service.stop() == 0
            outcomes = [client.result(PATIENCE_SECONDS) for client in clients]
        assert [problem for _, problem in outcomes if problem is not None] == []
        assert sum(answered for answered, _ in outcomes) > 50
    with RunningService(models, tmp_path, "--workers", "1") as service:
        assert thresholds(service.url, count=1) == {-4.5}


def test_a_worker_drains_when_its_supervisor_is_killed(models, tmp_path):
    with RunningService(models, tmp_path, "--workers", "1") as service:
        workers = service.workers()
        service.process.kill()
        service.process.wait()
        eventually(lambda: has_ended(workers))


def test_keys_guard_predict_and_admin_routes(impatient):
    post = lambda **headers: httpx.post(f"{impatient.url}/v1/predict", content=RED, headers=headers).status_code  # noqa: E731
    assert [post(), post(authorization="Bearer nobodys"), post(**{"x-api-key": "first-secret"})] == [401, 403, 200]
    assert post(authorization="Bearer second-secret") == 200
    assert httpx.get(f"{impatient.url}/v1/models").status_code == 401
    assert httpx.get(f"{impatient.url}/healthz").status_code == 200
    log = "\n".join(impatient.lines)
    assert "secret" not in log


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--gate", "accept99.99"], "needs at least 9999 calibration images"),
        (["--providers", "cuda"], "cuda does not start here: this is onnxruntime's build for CPUs"),
        (["--serve", "nobody"], "no bundle nobody"),
        (["--default-model", "nobody"], "default_model 'nobody' is not among those served"),
        (["--cors-origins", "shop.example"], "cors_origins: expected an origin such as https://example.com"),
        (["--prot", "1"], "unknown argument --prot; did you mean --port?"),
    ],
)
def test_start_up_stops_with_one_clear_line(models, tmp_path, flags, named):
    with pytest.raises(RuntimeError, match="did not start") as caught:
        RunningService(models, tmp_path, *flags)
    assert named in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_corrupt_bundle_stops_start_up(tmp_path):
    bundle = tiny.write(tmp_path / "models")
    (bundle.path / "model.onnx").write_bytes(b"cut short")
    with pytest.raises(RuntimeError, match="has digest"):
        RunningService(tmp_path / "models", tmp_path / "runtime")


def test_two_services_never_share_a_runtime_directory(models, service):
    with pytest.raises(RuntimeError, match="another Portcullis runs on the runtime directory"):
        RunningService(models, service.runtime)


def test_the_address_is_written_as_a_client_needs_it():
    for bound, expected in [(("127.0.0.1", 80), "https://127.0.0.1:80"), (("::1", 80, 0, 0), "https://[::1]:80")]:
        assert address_of(SimpleNamespace(getsockname=lambda bound=bound: bound), is_secure=True) == expected


def test_a_port_that_is_taken_is_named():
    taken = bind("127.0.0.1", 0)
    with taken, pytest.raises(SettingsError, match=r"cannot listen on 127.0.0.1:\d+: Address already in use"):
        bind("127.0.0.1", taken.getsockname()[1])


def test_a_call_may_bring_more_images_than_the_queue_holds(models, tmp_path):
    with RunningService(models, tmp_path / "runtime", "--workers", "1", "--queue-capacity", "4") as service:
        files = [("f", (str(number), RED)) for number in range(64)]
        entries = httpx.post(f"{service.url}/v1/predict/batch", files=files, timeout=60).json()["results"]
        assert [entry["answer"] and entry["answer"]["label"] for entry in entries] == ["red"] * 64
        shape = [64, tiny.SIZE, tiny.SIZE, 3]
        images = {"name": "images", "datatype": "UINT8", "shape": shape, "data": [0] * math.prod(shape)}
        answer = httpx.post(f"{service.url}/v2/models/tiny/infer", json={"inputs": [images]}, timeout=60)
        assert answer.status_code == 200, answer.text


def test_a_flood_is_refused_with_all_that_a_refusal_has_and_every_request_is_counted(models, tmp_path):
    """A queue of two and clients that do not wait: most are turned away, none is lost, forgotten or miscounted."""
    tight = ("--workers", "1", "--queue-capacity", "2", "--overload-wait-seconds", "0.000001")
    with RunningService(models, tmp_path / "runtime", *tight) as service:

        def ask(client_number):
            with httpx.Client(base_url=service.url, timeout=60) as client:
                return [
                    client.post("/v1/predict", content=RED, headers={"x-request-id": f"{client_number}-{number}"})
                    for number in range(40)
                ]

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = [answer for answers in pool.map(ask, range(16)) for answer in answers]
        refused = [answer for answer in answers if answer.status_code == 503]
        assert {answer.status_code for answer in answers} == {200, 503}
        sent = [f"{client}-{number}" for client in range(16) for number in range(40)]
        assert [answer.headers["x-request-id"] for answer in answers] == sent
        for answer in refused:
            error = answer.json()["error"]
            assert (error["code"], error["request_id"]) == ("overloaded", answer.headers["x-request-id"])
            assert int(answer.headers["retry-after"]) >= 1
        counted = samples(service.url, "portcullis_http_requests_total")
        assert counted['portcullis_http_requests_total{method="POST",route="/v1/predict",status="503"}'] == len(refused)
        assert samples(service.url, 'portcullis_errors_total{code="overloaded"}').popitem()[1] == len(refused)
        assert samples(service.url, 'portcullis_shed_total{reason="queue_full"}').popitem()[1] == len(refused)
