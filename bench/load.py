"""Load from another process: h2load (Debian's nghttp2-client), which costs little of the cores that it shares."""

import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CONNECTIONS_A_CLIENT = 20


@dataclass(frozen=True)
class Load:
    """What the clients saw."""

    connections: int
    requests_per_second: float
    """Answered with 200."""
    p50_seconds: float
    p99_seconds: float
    num_ok: int
    num_refused: int
    """Answered with 503."""
    refused_p99_seconds: float
    num_failed: int
    """Anything else, or no answer."""


def require() -> None:
    if shutil.which("h2load") is None:
        raise SystemExit("the benchmark needs h2load: apt-get install nghttp2-client")


def run(url: str, body: Path, connections: int, seconds: float, content_type: str = "image/png") -> Load:
    """Closed loop: a connection sends again once it is answered."""
    return _together([["-c", str(connections)]], url, body, connections, seconds, content_type)


def run_at(
    rate: float, url: str, body: Path, connections: int, seconds: float, content_type: str = "image/png"
) -> Load:
    """So many requests a second, answered or not, spread over time.

    h2load lets all its connections send at the same instant, again and again. Many small ones that start one after the
    other come nearer to clients that know nothing of each other.
    """
    per_client = ["-c", str(CONNECTIONS_A_CLIENT), "--rps", str(rate / connections)]
    clients = [per_client] * max(1, connections // CONNECTIONS_A_CLIENT)
    return _together(clients, url, body, connections, seconds, content_type, CONNECTIONS_A_CLIENT / rate)


def _together(
    clients: list[list[str]],
    url: str,
    body: Path,
    connections: int,
    seconds: float,
    content_type: str,
    pause: float = 0,
) -> Load:
    """Run h2load once for each of `clients`, `pause` seconds apart, and add up what they saw."""
    with tempfile.TemporaryDirectory() as directory:
        logs = [Path(directory) / str(index) for index in range(len(clients))]
        shared = ["--h1", "-t", "1", "--warm-up-time", "1", "-D", f"{round(1000 * seconds)}ms", "-d", str(body)]
        processes = []
        for flags, log in zip(clients, logs, strict=True):
            command = ["h2load", *shared, *flags, "-H", f"content-type: {content_type}", "--log-file", str(log), url]
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
            time.sleep(pause)
        for process in processes:
            _, problem = process.communicate(timeout=60 + 3 * seconds)
            if process.returncode:
                raise RuntimeError(f"h2load failed: {problem}")
        rows = [np.loadtxt(log, dtype=np.int64, ndmin=2) for log in logs if log.stat().st_size]
    return summarise(np.concatenate(rows), connections, seconds)


def summarise(rows: np.ndarray, connections: int, seconds: float) -> Load:
    """`rows`: start in µs, status (-1: failed), duration in µs."""
    statuses, durations = rows[:, 1], rows[:, 2] / 1e6
    ok, refused = durations[statuses == 200], durations[statuses == 503]
    return Load(
        connections=connections,
        requests_per_second=len(ok) / seconds,
        p50_seconds=_quantile(ok, 0.5),
        p99_seconds=_quantile(ok, 0.99),
        num_ok=len(ok),
        num_refused=len(refused),
        refused_p99_seconds=_quantile(refused, 0.99),
        num_failed=len(rows) - len(ok) - len(refused),
    )


def _quantile(values: np.ndarray, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else float("nan")
