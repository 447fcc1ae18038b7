"""A real Prometheus with our rules scrapes a real service: what the dashboard shows is there, and drift is noticed."""

import io
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from deploy.generate import PROMETHEUS, ROOT
from portcullis.environment import PREFIX
from tests import tiny
from tests.deploy.dockerfile import stages
from tests.deploy.promql import TARGET_LABELS, complaints, known, selectors
from tests.postgres import Cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus (Debian) is missing"),
]

PATIENCE_SECONDS = 60
ADMIN = {"Authorization": "Bearer a-long-secret"}
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "portcullis.json"
VARIABLES = {"$job": ".+", "$model": ".+", "$version": ".+", "$__rate_interval": "1m"}


@dataclass
class Stack:
    """The service and the Prometheus that watches it."""

    service: httpx.Client
    prometheus: httpx.Client

    def ask(self, expression: str) -> list[dict[str, Any]]:
        answer = self.prometheus.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer.get('error')}"
        return answer["data"]["result"]

    def alert_state(self, alert: str) -> str:
        groups = self.prometheus.get("/api/v1/rules", params={"type": "alert"}).json()["data"]["groups"]
        return next(rule["state"] for group in groups for rule in group["rules"] if rule["name"] == alert)

    def send(self, images: np.ndarray) -> None:
        for pixels in images:
            self.service.post("/v1/predict", content=_png(pixels)).raise_for_status()


def _png(pixels: np.ndarray) -> bytes:
    body = io.BytesIO()
    Image.fromarray(pixels).save(body, "PNG")
    return body.getvalue()


def wait_until(is_so: Callable[[], Any], what: str) -> None:
    """Two processes on their own clocks: ask again until it is so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS} s in vain: {what}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models directory of our own: the tests add to it."""
    directory = tmp_path_factory.mktemp("live") / "models"
    tiny.write(directory)
    tiny.write_fitted(directory, name="tiny-fitted")
    return directory


@pytest.fixture(scope="module")
def stack(models: Path, cluster: Cluster) -> Iterator[Stack]:
    """One instance of a fleet, for the dashboard shows the drift of a fleet too."""
    directory = models.parent
    with _service(directory, cluster.new_database()) as service, _prometheus(directory, service.base_url) as prometheus:
        yield Stack(service, prometheus)


class _Running:
    """A process that is ended with its block."""

    def __init__(self, process: "subprocess.Popen[str]", client: httpx.Client) -> None:
        self.process, self.client = process, client

    def __enter__(self) -> httpx.Client:
        return self.client

    def __exit__(self, *error: object) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(timeout=PATIENCE_SECONDS)
        if self.process.stdout:
            self.process.stdout.close()


def _service(directory: Path, database: str) -> _Running:
    flags = {
        "database": database,
        "models": directory / "models",
        "runtime-directory": directory / "runtime",
        "port": 0,
        "workers": 2,
        "providers": "cpu",
        "admin-keys": "tests:a-long-secret",
        "drift-alarm-images": 100_000,
        "log-requests-per-second": 0,
        "queue-capacity": 8,
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "portcullis", "serve", "--review-enabled", *words]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"ready on (http://\S+)", line):
            return _Running(process, httpx.Client(base_url=found[1], timeout=10))
    raise AssertionError(f"the service ended with {process.wait()} before it was ready")


def _prometheus(directory: Path, target: httpx.URL) -> _Running:
    """The shipped configuration with another target and a faster clock, nothing else."""
    home = directory / "prometheus"
    shutil.copytree(PROMETHEUS, home)
    config = yaml.safe_load((home / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"] = [
        {"job_name": "portcullis", "static_configs": [{"targets": [f"{target.host}:{target.port}"]}]}
    ]
    del config["alerting"]
    (home / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["prometheus", f"--config.file={home / 'prometheus.yml'}", f"--storage.tsdb.path={home / 'data'}"]
    flags = [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    process = subprocess.Popen([*command, *flags], text=True)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10)
    wait_until(lambda: _answers(client), "Prometheus starts")
    return _Running(process, client)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").is_success
    except httpx.TransportError:
        return False


def queries() -> list[str]:
    """Every expression of the dashboard, as Grafana would send it, and those of the autoscalers' metrics."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    adapter = yaml.safe_load((ROOT / "deploy/kubernetes/autoscaling/prometheus-adapter-values.yaml").read_text())
    asked = [rule["metricsQuery"].replace("<<.GroupBy>>", "instance") for rule in adapter["rules"]["custom"]]
    found += [expression.replace("<<.LabelMatchers>>", 'job=~".+"') for expression in asked]
    for name, value in VARIABLES.items():
        found = [expression.replace(name, value) for expression in found]
    return found


# Tests below share one stack and run in this order: familiar images first, then strange ones.


def test_the_drift_alert_goes_from_inactive_to_firing(stack):
    wait_until(lambda: stack.ask('up{job="portcullis"} == 1'), "Prometheus scrapes the service")
    familiar, _ = tiny.familiar(400, seed=7)
    stack.send(familiar)
    wait_until(lambda: stack.ask("portcullis_drift_window_images >= 400"), "the drift figures have seen them")
    assert stack.alert_state("PortcullisDriftEvidence") == "inactive"

    stack.send(np.full((200, tiny.SIZE, tiny.SIZE, 3), 128, np.uint8))
    wait_until(lambda: stack.alert_state("PortcullisDriftEvidence") == "firing", "the drift alert fires")
    (alert,) = [
        alert
        for alert in stack.prometheus.get("/api/v1/alerts").json()["data"]["alerts"]
        if alert["labels"]["alertname"] == "PortcullisDriftEvidence"
    ]
    assert alert["labels"]["model"] == "tiny"
    assert alert["annotations"]["summary"] == "tiny/1 sees images unlike those it was calibrated on"


def test_every_query_of_the_dashboard_has_an_answer_once_everything_has_happened(stack, models):
    """An error, a swap, a shadow, kept images, a gate by class: nothing that the dashboard shows may stay empty."""
    images, _ = tiny.familiar(64, seed=8)
    assert stack.service.post("/v1/predict", content=b"no image").status_code == 400
    stack.service.post("/v1/predict/batch", files=[("files", ("a.png", _png(pixels))) for pixels in images])
    tiny.write(models, version=2, sharpness=1.1)
    shadow = {"version": 2, "share": 1.0}
    stack.service.put("/v1/models/tiny/shadow", json=shadow, headers=ADMIN).raise_for_status()
    by_class = {"operating_point": "accept95:by-class"}
    stack.service.put("/v1/models/tiny-fitted/gate", json=by_class, headers=ADMIN).raise_for_status()
    stack.send(images)
    silent = [expression for expression in queries() if not stack.ask(expression)]
    wait_until(lambda: not any(map(_is_silent(stack), silent)), f"no answer: {silent}")


def _is_silent(stack: Stack) -> Callable[[str], bool]:
    return lambda expression: not stack.ask(expression)


def test_every_metric_and_label_of_the_dashboard_is_in_the_live_output(stack):
    live: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(stack.service.get("/metrics").text):
        for sample in family.samples:
            live.setdefault(sample.name, set(TARGET_LABELS)).update(sample.labels)
    declared = {name: labels for name, labels in known().items() if not name.startswith("portcullis:")}
    ours = {name: labels for name, labels in live.items() if not name.endswith("_created")}
    assert {name: labels for name, labels in ours.items() if declared.get(name) != labels} == {}, "undeclared"
    recorded = known().keys() - declared.keys()
    asked = {name for expression in queries() for name, _ in selectors(expression)} - recorded
    assert asked - live.keys() == set(), "the dashboard asks for what the service does not show"
    assert [wrong for expression in queries() for wrong in complaints(expression, known())] == []


def test_a_stuck_alert_is_no_alert(stack):
    """Rules that cannot be evaluated stay quiet for ever: none may report an error."""
    groups = stack.prometheus.get("/api/v1/rules").json()["data"]["groups"]
    assert {
        rule["name"]: rule.get("lastError") for group in groups for rule in group["rules"] if rule.get("lastError")
    } == {}


def test_the_metrics_are_well_formed(stack):
    if shutil.which("promtool") is None:
        pytest.skip("promtool (Debian: prometheus) is missing")
    text = stack.service.get("/metrics").text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_health_check_of_the_image_passes_on_the_real_service(stack):
    command = json.loads(stages()["cpu"].inherited("HEALTHCHECK")[0].partition("CMD ")[2])
    port = str(stack.service.base_url.port)
    done = subprocess.run([sys.executable, *command[1:]], env={f"{PREFIX}PORT": port}, check=False, timeout=30)
    assert done.returncode == 0
