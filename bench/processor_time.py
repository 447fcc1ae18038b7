"""`python -m bench.processor_time`: where a request's processor time goes at 64 connections, by thread."""

import argparse
import json
import os
import tempfile
from pathlib import Path

from bench import contenders, load, network

RESULTS = Path(__file__).parent / "results" / "processor_time.json"
CONNECTIONS = 64
_TICKS = os.sysconf("SC_CLK_TCK")

Seconds = tuple[float, float]
"""In the program, in the kernel."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.processor_time", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="length of the measurement")
    arguments = parser.parse_args()
    load.require()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), arguments.seconds)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    for name, microseconds in found.items():
        print(f"{name}: {microseconds:.0f}")


def measure(directory: Path, seconds: float) -> dict[str, float]:
    """Microseconds a request; h2load warms up for a second, which is not in its log."""
    network.write(directory / "models")
    body = directory / "image.png"
    body.write_bytes(network.png())
    with contenders.portcullis(directory / "models") as (url, process):
        load.run(f"{url}/v1/predict", body, CONNECTIONS, 1)
        workers = contenders.children(process)
        before, client_before = _threads(workers), os.times()
        seen = load.run(f"{url}/v1/predict", body, CONNECTIONS, seconds)
        after, client_after = _threads(workers), os.times()
    scale = 1e6 / (seen.num_ok * (seconds + 1) / seconds)
    spent = {name: [scale * (after[name][part] - before[name][part]) for part in (0, 1)] for name in after}
    client = client_after.children_user - client_before.children_user
    client += client_after.children_system - client_before.children_system
    return {
        "requests/s": seen.requests_per_second,
        "event loop, µs": spent["event loop"][0],
        "event loop in the kernel, µs": spent["event loop"][1],
        "engine and other threads, µs": sum(spent["engine"]),
        "load generator, µs": scale * client,
    }


def _threads(workers: list[int]) -> dict[str, Seconds]:
    """Summed over the workers: the main thread runs the event loop, nearly all of the rest is the engine's."""
    sums = {"event loop": (0.0, 0.0), "engine": (0.0, 0.0)}
    for worker in workers:
        for task in Path(f"/proc/{worker}/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            name = "event loop" if task.name == str(worker) else "engine"
            sums[name] = (sums[name][0] + int(fields[11]) / _TICKS, sums[name][1] + int(fields[12]) / _TICKS)
    return sums


if __name__ == "__main__":
    main()
