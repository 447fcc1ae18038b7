"""`python -m bench.ray_front`: what Ray Serve's front costs, beside our own service and the replicas by themselves."""

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench import contenders, load, network
from bench.__main__ import RESULTS
from bench.with_peers import Rounds, figures_of, load_all, table
from tests import postgres, ray_cluster

OURS, RAY, OWN, HAPROXY = "portcullis serve", "ray-serve", "ray-serve, own ports", "ray-serve, Ray's HAProxy"
QUIET = ("--log-requests-per-second", "0")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ray_front", description=__doc__)
    parser.add_argument("--models", type=Path, help="default: the network of the other benchmarks, with a 32×32 PNG")
    parser.add_argument("--image", type=Path, help="what is sent to the default model there")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, every way in each; figures are medians")
    parser.add_argument("--name", default="resnet20, 32×32 PNG", help="what the figures are of, in the results")
    parser.add_argument("--out", type=Path, default=RESULTS / "ray_front.json")
    arguments = parser.parse_args()
    load.require()
    with tempfile.TemporaryDirectory() as directory, postgres.cluster() as cluster:
        body = Path(directory) / "body"
        body.write_bytes(arguments.image.read_bytes() if arguments.image else network.png())
        models = arguments.models or network.write(Path(directory) / "models").path.parent.parent
        rounds: Rounds = {}
        for _ in range(arguments.rounds):
            measure(rounds, models, body, cluster, arguments.seconds)
    figures = figures_of(rounds)
    kept = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    kept[arguments.name] = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "figures": figures}
    arguments.out.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(table(figures, {}))


def measure(rounds: Rounds, models: Path, body: Path, cluster: postgres.Cluster, seconds: float) -> None:
    """One round; as many processes with an engine as there are cores in each."""
    count = len(os.sched_getaffinity(0))
    with contenders.portcullis(models, *QUIET) as (url, _):
        load_all(rounds, OURS, f"{url}/v1/predict", body, "image/jpeg", seconds)
    with replicas(models, cluster, count) as (url, own):
        load_all(rounds, RAY, f"{url}/v1/predict", body, "image/jpeg", seconds)
        load_all(rounds, OWN, f"{own}/v1/predict", body, "image/jpeg", seconds)
    with replicas(models, cluster, count, RAY_SERVE_ENABLE_HA_PROXY="1") as (url, _):
        load_all(rounds, HAPROXY, f"{url}/v1/predict", body, "image/jpeg", seconds)


@contextlib.contextmanager
def replicas(models: Path, cluster: postgres.Cluster, count: int, **variables: str) -> Iterator[tuple[str, str]]:
    """Addresses of Ray's front, and of one replica."""
    port = ray_cluster.free_ports(1 + count)
    environment = {"PORTCULLIS_DATABASE": cluster.new_database(), "RAY_AUTH_MODE": "disabled", **variables}
    flags = ("--port", str(port), "--own-port", str(port + 1), "--replicas", str(count), *QUIET)
    with contenders.portcullis(models, *flags, name="ray-serve", environment=environment) as (url, _):
        yield url, f"http://127.0.0.1:{port + 1}"


if __name__ == "__main__":
    main()
