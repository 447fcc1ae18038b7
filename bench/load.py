"""Load from another process: h2load (Debian's nghttp2-client), which costs little of the cores that it shares."""

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np


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


def run(
    url: str, body: Path, connections: int, seconds: float, content_type: str = "image/png", rate: float | None = None
) -> Load:
    """Closed loop: a connection sends again once it is answered; with `rate`, at most so many a second in all."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        command = ["h2load", "--h1", "-t", "1", "-c", str(connections), "--warm-up-time", "1"]
        command += ["-D", f"{round(1000 * seconds)}ms"]
        command += ["-d", str(body), "-H", f"content-type: {content_type}", "--log-file", str(log)]
        if rate is not None:
            command += ["--rps", str(rate / connections)]
        subprocess.run([*command, url], check=True, capture_output=True, timeout=60 + 3 * seconds)
        return summarise(np.loadtxt(log, dtype=np.int64, ndmin=2), connections, seconds)


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
