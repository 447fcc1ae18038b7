"""`python -m bench.overload`: more than a slow engine can answer, from clients that know nothing of each other.

The engine is simulated, so it is as slow on every machine and leaves the cores to the clients; it runs one image after
the other, as larger batches gain nothing on a CPU. Requests come at random (a Poisson process), whether those before
are answered or not. With `--beside`, another tree's service takes turns with this one. Medians over the rounds are kept
in bench/results/overload.json.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bench import contenders
from tests import tiny
from tests.service.pictures import RED

RESULTS = Path(__file__).parent / "results" / "overload.json"
HERE = Path(__file__).parent.parent / "service"
COLUMNS = ("offered", "served", "p50_ms", "p99_ms", "refused", "refused_p99_ms")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.overload", description=__doc__)
    parser.add_argument("--per-image-ms", type=float, default=15.0, help="time of an image on the engine")
    parser.add_argument("--loads", type=_numbers, default=(1.3, 2.0, 4.0, 0.6), help="offered, of its capacity")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; figures are medians over them")
    parser.add_argument("--beside", type=Path, help="`service/` of another tree, to be served in turn with this one")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    trees = {"this": HERE} | ({"beside": arguments.beside.resolve()} if arguments.beside else {})
    rows: dict[tuple[str, float], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        tiny.write(Path(directory))
        for number in range(arguments.rounds):
            for name in list(trees)[:: -1 if number % 2 else 1]:
                for share, row in one_round(Path(directory), trees[name], arguments, number):
                    rows.setdefault((name, share), []).append(row)
    found = [{"tree": name, "load": share, **medians(each)} for (name, share), each in rows.items()]
    capacity = 1000 / arguments.per_image_ms
    results = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "capacity": capacity, "rows": found}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    print(f"kept in {arguments.out}")


def one_round(models: Path, tree: Path, arguments: Any, seed: int) -> list[tuple[float, dict[str, float]]]:
    """Every load once, one after the other on one service; the first half of each is not counted."""
    provider = f"simulated:fixed=0:image={arguments.per_image_ms}"
    flags = ("--providers", provider, "--max-batch", "1", "--workers", "1", "--log-requests-per-second", "0")
    capacity = 1000 / arguments.per_image_ms
    with contenders.portcullis(models, *flags, environment={"PYTHONPATH": str(tree)}) as (url, _):
        return [
            (share, asyncio.run(offer(url, share * capacity, arguments.seconds, seed))) for share in arguments.loads
        ]


async def offer(url: str, rate: float, seconds: float, seed: int) -> dict[str, float]:
    """So many a second at random, for twice as many seconds as are counted."""
    address, dice, clients = urlsplit(url), random.Random(seed), Clients(RED)
    start = at = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        while at < start + 2 * seconds:
            at += dice.expovariate(rate)
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            tasks.create_task(clients.ask(str(address.hostname), int(address.port or 80), at - start >= seconds))
    clients.close()
    return summarise(clients.counted, seconds)


class Clients:
    """Connections that are used again; a new one where all are waiting for an answer."""

    def __init__(self, body: bytes) -> None:
        head = f"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ncontent-length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.counted: list[tuple[int, float]] = []
        """Status and seconds of each answer."""

    async def ask(self, host: str, port: int, is_counted: bool) -> None:
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection(host, port)
        started = time.monotonic()
        writer.write(self._request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        if is_counted:
            self.counted.append((int(head.split()[1]), time.monotonic() - started))
        if b"connection: close" in head:
            writer.close()
        else:
            self._free.append((reader, writer))

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


def summarise(answers: list[tuple[int, float]], seconds: float) -> dict[str, float]:
    """By status, a second; and how long each kind waited."""
    ok = [took for status, took in answers if status == 200]
    refused = [took for status, took in answers if status == 503]
    assert len(ok) + len(refused) == len(answers), f"statuses {sorted({status for status, _ in answers})}"
    counts = [len(answers) / seconds, len(ok) / seconds, len(refused) / seconds]
    return dict(zip(("offered", "served", "refused"), counts, strict=True)) | {
        "p50_ms": _milliseconds(ok, 0.5),
        "p99_ms": _milliseconds(ok, 0.99),
        "refused_p99_ms": _milliseconds(refused, 0.99),
    }


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in COLUMNS}


def table(results: dict[str, Any]) -> str:
    cells = [[row["tree"], str(row["load"]), *(f"{row[name]:.0f}" for name in COLUMNS)] for row in results["rows"]]
    rows = [["tree", "load", *COLUMNS], ["---"] * (2 + len(COLUMNS)), *cells]
    lines = [f"an engine for {results['capacity']:.0f} images/s", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _milliseconds(seconds: list[float], share: float) -> float:
    """None of them waited where there are none."""
    return 1000 * float(np.quantile(seconds, share)) if seconds else 0.0


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


if __name__ == "__main__":
    main()
