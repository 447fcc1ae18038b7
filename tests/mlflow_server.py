"""MLflow's own server, in an environment of its own that .ci/run makes: 600 MB that the tests' own does without."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

PROGRAM = Path(os.environ.get("MLFLOW_SERVER", Path.home() / ".cache" / "portcullis" / "mlflow" / "bin" / "mlflow"))
START_SECONDS = 600  # of a busy machine; a server that fails ends, and that is seen at once
QUIET = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


@contextmanager
def mlflow_server(directory: Path) -> Iterator[str]:
    """A server with a database and artifacts in a directory; its address."""
    if not PROGRAM.exists():
        pytest.skip(f"MLflow's server is not at {PROGRAM}; .ci/run puts it there, or set MLFLOW_SERVER")
    port = _free_port()
    command = [str(PROGRAM), "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{directory}/mlflow.db", "--artifacts-destination", str(directory)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=directory, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **QUIET}
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process, directory / "log")
        yield url
    finally:
        os.killpg(process.pid, 15)  # it has children
        process.wait(60)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"MLflow's server ended:\n{log.read_text()}")
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"MLflow's server did not start:\n{log.read_text()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
