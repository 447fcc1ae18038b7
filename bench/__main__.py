"""`python -m bench`: the raw engine and the service side by side; prints a table and keeps it in bench/results/."""

import argparse
import json
import os
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import bookkeeping, contenders, load, machine, network, raw_engine
from bench.machine import Machine

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; figures are medians over them")
    parser.add_argument("--requests", type=int, default=200_000, help="requests of the memory test")
    parser.add_argument("--out", type=Path, default=RESULTS / "service.json")
    arguments = parser.parse_args()
    load.require()
    with tempfile.TemporaryDirectory() as directory:
        results = measure(Path(directory), arguments.seconds, arguments.rounds, arguments.requests)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    print(f"kept in {arguments.out}")


def measure(directory: Path, seconds: float, rounds: int, num_requests: int) -> dict[str, Any]:
    """Everything of the table; ratios are taken within a round, where the machine was the same."""
    bundle = network.write(directory / "models").path
    body = directory / "image.png"
    body.write_bytes(network.png())
    cores = len(os.sched_getaffinity(0))
    here = machine.found([bundle])
    by_batch = {
        size: raw_engine.images_per_second(bundle, size, here.environments, seconds / 4) for size in here.batches
    }
    best = max(by_batch, key=by_batch.__getitem__)
    found = [one_round(directory, bundle, body, here, best, seconds) for _ in range(rounds)]
    return {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": cores,
        "provider": here.provider,
        "cards": here.cards,
        "num_processes": here.num_processes,
        "connections": here.connections,
        "raw_by_batch": by_batch,
        "best_batch": best,
        "rounds": found,
        "median": medians(found),
        "overload": _overload(directory, body, here.connections[-1], seconds),
        "bookkeeping": _bookkeeping(bundle, found, cores),
        "memory": _memory(directory, body, num_requests),
        "start_seconds": start_seconds(directory),
    }


def one_round(directory: Path, bundle: Path, body: Path, here: Machine, best: int, seconds: float) -> dict[str, float]:
    """The raw engine and the service at every load, once."""
    row = {
        "raw_batch_1": raw_engine.images_per_second(bundle, 1, here.environments, seconds),
        "raw_best_batch": raw_engine.images_per_second(bundle, best, here.environments, seconds),
        "raw_seconds_of_one": raw_engine.seconds_of_one(bundle, here.environments[0], seconds / 4),
    }
    with contenders.portcullis(directory / "models") as (url, _):
        for connections in here.connections:
            seen = load.run(f"{url}/v1/predict", body, connections, seconds)
            assert seen.num_failed == 0, f"{seen.num_failed} requests failed at {connections} connections"
            row |= {
                f"requests_per_second_{connections}": seen.requests_per_second,
                f"p50_{connections}": seen.p50_seconds,
                f"p99_{connections}": seen.p99_seconds,
                f"refused_{connections}": seen.num_refused,
            }
    most = row[f"requests_per_second_{here.connections[-1]}"]
    row["share_of_raw"] = most / max(row["raw_batch_1"], row["raw_best_batch"])
    row["p50_1_over_raw"] = row["p50_1"] / row["raw_seconds_of_one"]
    return row


def _bookkeeping(bundle: Path, rounds: list[dict[str, float]], cores: int) -> dict[str, float]:
    """Gate, metrics, score ring and log, of all the time that a request takes when the service is full."""
    seconds = bookkeeping.seconds_a_request(bundle)
    whole = cores / statistics.median(row["requests_per_second_64"] for row in rounds)
    return {"seconds": seconds, "share": seconds / whole}


def _overload(directory: Path, body: Path, connections: int, seconds: float) -> dict[str, float]:
    """Four times the load that it can hold."""
    with contenders.portcullis(directory / "models") as (url, process):
        unloaded = load.run(f"{url}/v1/predict", body, 1, seconds)
        full = load.run(f"{url}/v1/predict", body, connections, seconds)
        before = max(map(contenders.resident_bytes, contenders.children(process)))
        flood = load.run_at(4 * full.requests_per_second, f"{url}/v1/predict", body, 400, 2 * seconds)
        after = max(map(contenders.resident_bytes, contenders.children(process)))
    return {
        "offered_over_capacity": (flood.num_ok + flood.num_refused) / (2 * seconds) / full.requests_per_second,
        "unloaded_p99": unloaded.p99_seconds,
        "admitted_p99": flood.p99_seconds,
        "admitted_p99_over_unloaded": flood.p99_seconds / unloaded.p99_seconds,
        "refused_p99": flood.refused_p99_seconds,
        "admitted_per_second": flood.requests_per_second,
        "failed": flood.num_failed,
        "resident_before": before,
        "resident_after": after,
    }


def _memory(directory: Path, body: Path, num_requests: int) -> dict[str, float]:
    """Growth from a warm service over many requests."""
    with contenders.portcullis(directory / "models") as (url, process):
        rate = load.run(f"{url}/v1/predict", body, 32, 3).requests_per_second
        before = max(map(contenders.resident_bytes, contenders.children(process)))
        answered = 0
        while answered < num_requests:
            answered += load.run(
                f"{url}/v1/predict", body, 32, max(1.0, min(60.0, (num_requests - answered) / rate))
            ).num_ok
        after = max(map(contenders.resident_bytes, contenders.children(process)))
    return {"requests": answered, "resident_before": before, "resident_after": after, "growth": after / before - 1}


def start_seconds(directory: Path) -> float:
    """From the command to the first ready line, the median of three."""
    times = []
    for _ in range(3):
        started = time.monotonic()
        with contenders.portcullis(directory / "models"):
            times.append(time.monotonic() - started)
    return statistics.median(times)


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    """Of each figure over all rounds."""
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def table(results: dict[str, Any]) -> str:
    """The figures for people."""
    median, flood, memory = results["median"], results["overload"], results["memory"]
    lines = [
        f"on {results['provider']} {'; '.join(results['cards'])}".rstrip(),
        "| batch of the raw engine | " + " | ".join(map(str, results["raw_by_batch"])) + " |",
        "| --- |" + " --- |" * len(results["raw_by_batch"]),
        "| images/s | " + " | ".join(f"{rate:.0f}" for rate in results["raw_by_batch"].values()) + " |",
        "",
        f"raw engine, {results['num_processes']} processes: {median['raw_batch_1']:.0f} images/s at batch 1, "
        f"{median['raw_best_batch']:.0f} at batch {results['best_batch']}; "
        f"one image {_milliseconds(median['raw_seconds_of_one'])} ms",
        "",
        "| connections | requests/s | p50 ms | p99 ms |",
        "| --- | --- | --- | --- |",
        *(_row(median, connections) for connections in results["connections"]),
        "",
        f"share of the raw engine at {results['connections'][-1]} connections: {median['share_of_raw']:.2f}",
        f"p50 at 1 connection over one raw image: {median['p50_1_over_raw']:.2f}",
        f"overload ({flood['offered_over_capacity']:.1f}x): admitted p99 {_milliseconds(flood['admitted_p99'])} ms, "
        f"{flood['admitted_p99_over_unloaded']:.1f}x unloaded; refused p99 {_milliseconds(flood['refused_p99'])} ms",
        f"gate, metrics and log: {1e6 * results['bookkeeping']['seconds']:.0f} µs a request, "
        f"{100 * results['bookkeeping']['share']:.1f} % of it at 64 connections",
        f"memory of a worker {memory['resident_after'] / 2**20:.0f} MB, "
        f"growth {100 * memory['growth']:.1f} % over {memory['requests']} requests",
        f"ready after {results['start_seconds']:.1f} s",
    ]
    return "\n".join(lines)


def _row(median: dict[str, float], connections: int) -> str:
    rate, p50, p99 = (median[f"{name}_{connections}"] for name in ("requests_per_second", "p50", "p99"))
    return f"| {connections} | {rate:.0f} | {_milliseconds(p50)} | {_milliseconds(p99)} |"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"


if __name__ == "__main__":
    main()
