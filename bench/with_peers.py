"""`python -m bench.with_peers`: the service and its peers at the same loads, in turn, in one table."""

import argparse
import json
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench import contenders, load, network, peer_contenders
from bench.__main__ import RESULTS
from bench.machine import CPU_CONNECTIONS

OURS = "Portcullis"
Rounds = dict[str, dict[int, list[load.Load]]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.with_peers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, every contender in each; figures are medians")
    parser.add_argument("--peers", default=",".join(peer.name for peer in peer_contenders.ALL), help="which, by name")
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.json")
    arguments = parser.parse_args()
    load.require()
    peers = [peer for peer in peer_contenders.ALL if peer.name in arguments.peers.split(",")]
    for peer in peers:
        peer_contenders.install(peer)
    with tempfile.TemporaryDirectory() as directory:
        rounds, absent = measure(Path(directory), peers, arguments.seconds, arguments.rounds)
    figures = figures_of(rounds)
    result = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "absent": absent, "figures": figures}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(figures, absent))
    print(f"kept in {arguments.out}")


def measure(
    directory: Path, peers: list[peer_contenders.Peer], seconds: float, num_rounds: int
) -> tuple[Rounds, dict[str, str]]:
    """Every contender at every load, round by round; one that does not start is named with the reason."""
    bundle = network.write(directory / "models").path
    picture = network.png()
    rounds: Rounds = {}
    absent: dict[str, str] = {}
    for _ in range(num_rounds):
        body = directory / "body"
        body.write_bytes(picture)
        with contenders.portcullis(directory / "models") as (url, _):
            load_all(rounds, OURS, f"{url}/v1/predict", body, "image/png", seconds)
        for peer in peers:
            body.write_bytes(peer_contenders.body_of(peer, picture))
            try:
                with peer_contenders.serving(peer, bundle / "model.onnx", body.read_bytes()) as url:
                    load_all(rounds, peer.name, url, body, peer.content_type, seconds)
            except RuntimeError as error:
                absent[peer.name] = str(error)
    return rounds, absent


def load_all(rounds: Rounds, name: str, url: str, body: Path, content_type: str, seconds: float) -> None:
    for connections in CPU_CONNECTIONS:
        seen = load.run(url, body, connections, seconds, content_type)
        rounds.setdefault(name, {}).setdefault(connections, []).append(seen)


def figures_of(rounds: Rounds) -> dict[str, dict[int, dict[str, float]]]:
    return {name: {n: _figures(loads) for n, loads in by_load.items()} for name, by_load in rounds.items()}


def _figures(loads: list[load.Load]) -> dict[str, float]:
    return {
        "requests_per_second": statistics.median(seen.requests_per_second for seen in loads),
        "p50_seconds": statistics.median(seen.p50_seconds for seen in loads),
        "p99_seconds": statistics.median(seen.p99_seconds for seen in loads),
        "failed_or_refused": sum(seen.num_failed + seen.num_refused for seen in loads),
    }


def table(figures: dict[str, dict[int, dict[str, float]]], absent: dict[str, str]) -> str:
    """requests/s, p50 and p99 in ms, one row a contender."""
    head = "| | " + " | ".join(f"{n} connections: requests/s, p50, p99 ms" for n in CPU_CONNECTIONS) + " |"
    lines = [head, "| --- |" + " --- |" * len(CPU_CONNECTIONS)]
    for name, by_load in figures.items():
        cells = [
            f"{row['requests_per_second']:.0f}, {1e3 * row['p50_seconds']:.1f}, {1e3 * row['p99_seconds']:.1f}"
            for row in by_load.values()
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines + [f"{name}: not measured, {reason}" for name, reason in absent.items()])


if __name__ == "__main__":
    main()
