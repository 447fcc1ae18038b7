"""The supervisor with workers that misbehave: whatever one does costs itself only. Real processes."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.hammer import eventually
from tests.running import RunningService
from tests.sabotage import is_whole, say_on_the_control_channel
from tests.service.pictures import RED

pytestmark = pytest.mark.slow
CHATTER = "a library that greets whoever loads it"


def test_it_loads_nothing_that_only_an_answer_needs():
    """It answers nobody: a server's packages would cost a start most of a second, and memory for as long as it runs."""
    packages = ("fastapi", "uvicorn", "onnxruntime", "PIL", "orjson")
    loaded = f"import sys, portcullis.processes.supervisor; print([name for name in {packages} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_line_on_a_workers_standard_output_is_only_a_line(models, tmp_path):
    """Printed by every process as it starts, long before it says that it is ready."""
    (tmp_path / "sitecustomize.py").write_text(f"print({CHATTER!r}, flush=True)")
    environment = {"PYTHONPATH": str(tmp_path)}
    with RunningService(models, tmp_path / "runtime", environment=environment) as service:
        assert httpx.post(f"{service.url}/v1/predict", content=RED).status_code == 200
        assert "".join(service.lines).count(CHATTER) == 3  # the supervisor's own and two workers'
        for worker in service.workers():
            assert Path(f"/proc/{worker}/fd/1").samefile(f"/proc/{service.process.pid}/fd/2")


def test_a_worker_that_says_nonsense_is_replaced_and_nobody_else(models, tmp_path):
    with RunningService(models, tmp_path) as service:
        for count, nonsense in enumerate(
            (b"*** EP Error ***\n", b"[1]\n", b'{"ready": "perhaps"}\n', b"x" * 100_000), 1
        ):
            victim, other = service.workers()
            say_on_the_control_channel(service, victim, nonsense)
            eventually(lambda gone=victim: gone not in service.workers() and is_whole(service))
            assert other in service.workers()
            assert sum("nonsense" in line for line in service.lines) == count


def test_a_worker_that_cannot_be_started_is_started_as_soon_as_it_can(models, tmp_path):
    """The supervisor is out of file descriptors when it wants another worker; out of memory it is told the same way."""
    with RunningService(models, tmp_path) as service:
        victim, other = service.workers()
        supervisor, hard = service.process.pid, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        enough = resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, hard))
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: any("worker 0 cannot be started: Too many open files" in line for line in service.lines))
        assert httpx.post(f"{service.url}/v1/predict", content=RED).status_code == 200
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, enough)
        eventually(lambda: is_whole(service))
        assert other in service.workers()
