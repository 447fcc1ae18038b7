"""Peers as contenders: installed in a virtual environment each, started, asked until they answer, stopped."""

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
VENVS = Path(__file__).parent / "results" / "venvs"
BOUNDARY = "portcullis-bench"
FORM = f"multipart/form-data; boundary={BOUNDARY}"


@dataclass(frozen=True)
class Peer:
    """How one peer is installed, started and asked."""

    name: str
    packages: tuple[str, ...]
    command: tuple[str, ...]
    """`{python}`, `{bin}`, `{port}` are filled in; run inside bench/peers."""
    path: str
    content_type: str
    environment: tuple[tuple[str, str], ...] = ()


ALL = (
    Peer("mosec", ("mosec",), ("{python}", "serve_mosec.py", "--address", "127.0.0.1", "--port", "{port}"),
         "/inference", "image/png"),
    Peer("LitServe", ("litserve", "python-multipart"), ("{python}", "serve_litserve.py"), "/predict", FORM),
    Peer("BentoML", ("bentoml",),
         ("{bin}/bentoml", "serve", "serve_bentoml:Classifier", "--host", "127.0.0.1", "--port", "{port}"),
         "/predict", FORM, (("BENTOML_DO_NOT_TRACK", "True"),)),
    # its workers ask for an event loop that newer uvloops no longer make
    Peer("MLServer", ("mlserver", "uvloop<0.22"), ("{bin}/mlserver", "start", "."), "/v2/models/classifier/infer",
         "application/json",
         (("MLSERVER_HOST", "127.0.0.1"), ("MLSERVER_HTTP_PORT", "{port}"), ("MLSERVER_PARALLEL_WORKERS", "2"),
          ("MLSERVER_GRPC_PORT", "{port2}"), ("MLSERVER_METRICS_PORT", "{port3}"),
          ("MLSERVER_MODEL_NAME", "classifier"),
          ("MLSERVER_MODEL_IMPLEMENTATION", "serve_mlserver.Classifier"))),
    Peer("Ray Serve", ("ray[serve]",), ("{python}", "serve_ray.py"), "/predict", "image/png",
         (("RAY_USAGE_STATS_ENABLED", "0"),)),
)  # fmt: skip


def install(peer: Peer) -> Path:
    """The peer's environment, made where it is missing."""
    venv = VENVS / peer.name.lower().replace(" ", "-")
    stamp = venv / ".installed"
    if not stamp.exists():
        print(f"installing {peer.name} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        pip = [str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "numpy", "pillow", "onnxruntime", *peer.packages], check=True)
        stamp.touch()
    return venv


def body_of(peer: Peer, picture: bytes) -> bytes:
    """The picture as this peer takes it."""
    if peer.content_type == FORM:
        name = 'content-disposition: form-data; name="file"; filename="image.png"'
        head = f"--{BOUNDARY}\r\n{name}\r\ncontent-type: image/png\r\n\r\n"
        return head.encode() + picture + f"\r\n--{BOUNDARY}--\r\n".encode()
    if peer.content_type == "application/json":
        tensor = {
            "name": "image",
            "shape": [1, 1],
            "datatype": "BYTES",
            "parameters": {"content_type": "base64"},
            "data": [base64.b64encode(picture).decode()],
        }
        return json.dumps({"inputs": [tensor]}).encode()
    return picture


@contextlib.contextmanager
def serving(peer: Peer, graph: Path, body: bytes) -> Iterator[str]:
    """Start a peer and wait until it answers a real request; yields the address to ask."""
    venv = install(peer).resolve()
    ports = {"port": free_port(), "port2": free_port(), "port3": free_port()}
    filled = {**ports, "python": venv / "bin" / "python", "bin": venv / "bin"}
    environment = {
        **os.environ,
        "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
        "BENCH_GRAPH": str(graph.resolve()),
        "BENCH_PORT": str(ports["port"]),
        "OMP_NUM_THREADS": "1",
        **{name: value.format(**filled) for name, value in peer.environment},
    }
    command = [part.format(**filled) for part in peer.command]
    process = subprocess.Popen(
        command,
        cwd=PEERS,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{ports['port']}{peer.path}"
    try:
        wait_for_answer(url, body, peer.content_type, process)
        yield url
    finally:
        stop(process)


def wait_for_answer(
    url: str, body: bytes, content_type: str, process: subprocess.Popen[bytes], seconds: float = 120
) -> None:
    request = urllib.request.Request(url, body, {"content-type": content_type})
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.3)
    raise RuntimeError(f"no answer from {url}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the peer and the processes that it started: they share the session that we gave it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
