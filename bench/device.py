"""`python -m bench.device`: the whole service over HTTP on a simulated device, against what that device can do.

Time passes on it as on a GPU: a fixed part and a part for each image, and extra where a session meets another batch
size. What is measured is everything around it: fronts, lanes, batches, admission. Kept in bench/results/device.json.
"""

import argparse
import io
import json
import re
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from bench import contenders, load
from portcullis.bundle.devices import num_cores
from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.preprocess import decode
from tests import tiny

RESULTS = Path(__file__).parent / "results" / "device.json"
MAX_BATCH = 64
CONNECTIONS = 240
IN_TURN = 2 * MAX_BATCH
"""Connections that send again once they are answered: enough for two batches, and never more than may wait."""
JPEG_SIZE = 224
PNG_SIZE = 32
COLUMNS = (
    *("load", "fronts", "offered/s", "served/s", "of capacity", "refused/s", "mean batch", "device busy"),
    *("p50 ms", "p99 ms", "µs a request of fronts", "engine process", "client"),
)
FAST = (2.0, 0.2)
"""A device that outruns one process: milliseconds a batch and an image."""


@dataclass(frozen=True)
class Device:
    """How the device behaves, in milliseconds."""

    fixed: float
    image: float
    replan: float

    @property
    def provider(self) -> str:
        return f"simulated:fixed={self.fixed}:image={self.image}:replan={self.replan}:answers=kept"

    @property
    def capacity(self) -> float:
        """Images a second in full batches."""
        return 1000 * MAX_BATCH / (self.fixed + self.image * MAX_BATCH)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.device", description=__doc__)
    parser.add_argument("--fixed-ms", type=float, default=10.0, help="time of a batch, however small")
    parser.add_argument("--per-image-ms", type=float, default=0.8, help="time of an image in it")
    parser.add_argument("--replan-ms", type=float, default=15.0, help="extra where a session meets another batch size")
    parser.add_argument("--loads", type=_numbers, default=(0.6, 0.9, 1.0, 1.3, 0.6), help="offered, of its capacity")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of one measurement")
    parser.add_argument("--only", choices=PARTS, nargs="*", default=list(PARTS), help="parts to measure")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    load.require()
    device = Device(arguments.fixed_ms, arguments.per_image_ms, arguments.replan_ms)
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    results |= {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "cores": num_cores()}
    with tempfile.TemporaryDirectory() as scratch:
        for part in arguments.only:
            directory = Path(scratch) / part
            directory.mkdir()
            results[part] = PARTS[part](directory, device, arguments.loads, arguments.seconds)
            print(_table(part, results[part]), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"kept in {arguments.out}")


def loads(directory: Path, device: Device, shares: tuple[float, ...], seconds: float) -> dict[str, Any]:
    """Small PNGs at shares of the device's capacity, one after the other on one service."""
    body, _ = _picture(directory, PNG_SIZE)
    with _service(directory, device) as service:
        rows = [_measure(service, body, share * device.capacity, seconds) | {"load": share} for share in shares]
    return {"device": asdict(device), "capacity": device.capacity, "rows": rows}


def photographs(directory: Path, device: Device, shares: tuple[float, ...], seconds: float) -> dict[str, Any]:
    """JPEGs that take the cores longer than the device: what is served, of what the cores could decode."""
    small, _ = _picture(directory, PNG_SIZE)
    body, kind = _picture(directory, JPEG_SIZE)
    fast = Device(*FAST, device.replan)
    with _service(directory, fast) as service:
        decoded = _decoded_per_second(body, seconds / 2)
        rows = [_measure(service, body, None, seconds, kind), _measure(service, small, None, seconds)]
    large, plain = rows
    decode_us = 1e6 * num_cores() / decoded
    return {
        "device": asdict(fast),
        "capacity": fast.capacity,
        "bytes": body.stat().st_size,
        "decoded_per_second": decoded,
        "rows": rows,
        "share_of_decoding": large["served_per_second"] / decoded,
        "processor_us": {
            "decoding, with nothing else to do": decode_us,
            "HTTP, gate, metrics: the fronts' time for a small PNG": plain["fronts_us_a_request"],
            "the rest of the fronts' time: larger bodies and pixels, colder caches": large["fronts_us_a_request"]
            - plain["fronts_us_a_request"]
            - decode_us,
            "engine process": large["engine_process_us_a_request"],
            "load generator": large["client_us_a_request"],
        },
    }


def fronts(directory: Path, device: Device, shares: tuple[float, ...], seconds: float) -> dict[str, Any]:
    """A device that outruns one process: one front and two, with small PNGs and with JPEGs."""
    fast, found = Device(*FAST, device.replan), dict[str, Any]()
    for size in (PNG_SIZE, JPEG_SIZE):
        body, kind = _picture(directory, size)
        rows = []
        for count in (1, 2, 1, 2):  # by turns: the machine is not the same for long
            with _service(directory, fast, "--workers", str(count)) as service:
                rows.append(_measure(service, body, None, seconds, kind) | {"fronts": count})
        served = {count: sum(row["served_per_second"] for row in rows if row["fronts"] == count) for count in (1, 2)}
        found[kind] = {"rows": rows, "two_over_one": served[2] / served[1]}
    return {"device": asdict(fast), "capacity": fast.capacity, **found}


PARTS = {part.__name__: part for part in (loads, photographs, fronts)}


@dataclass(frozen=True)
class Service:
    """A running one."""

    url: str
    pids: list[int]


@contextmanager
def _service(directory: Path, device: Device, *flags: str) -> Iterator[Service]:
    quiet = ("--log-requests-per-second", "0", "--max-batch", str(MAX_BATCH))
    with contenders.portcullis(directory / "models", "--providers", device.provider, *quiet, *flags) as (url, process):
        yield Service(url, [process.pid, *contenders.children(process)])


def _picture(directory: Path, size: int) -> tuple[Path, str]:
    """A bundle of this size, and a picture: noise that a PNG of 32 pixels is, or about 20 KB of JPEG."""
    tiny.write(directory / "models", name=f"tiny-{size}", size=size)
    random = np.random.default_rng(0)
    if size == PNG_SIZE:
        pixels, kind, options = random.integers(0, 256, (size, size, 3), dtype=np.uint8), "PNG", {}
    else:
        coarse = random.integers(0, 256, (28, 28, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC), np.float64)
        pixels = np.clip(smooth + random.normal(0, 9, smooth.shape), 0, 255).astype(np.uint8)
        kind, options = "JPEG", {"quality": 85}
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    body = directory / f"{size}.{kind.lower()}"
    body.write_bytes(stream.getvalue())
    return body, f"image/{kind.lower()}"


def _measure(
    service: Service, body: Path, rate: float | None, seconds: float, kind: str = "image/png"
) -> dict[str, float]:
    """What clients saw, and what the engine process counted meanwhile; `rate` None: as fast as they are answered."""
    model = f"tiny-{body.stem}"
    url, before = f"{service.url}/v1/predict?model={model}", _batches(service.url, model)
    spent, started, clients = _processor_seconds(service.pids), time.monotonic(), _children_seconds()
    if rate is None:
        seen = load.run(url, body, IN_TURN, seconds, kind)
    else:
        connections = max(load.CONNECTIONS_A_CLIENT, min(CONNECTIONS, round(rate / 2)))  # each sends twice a second
        seen = load.run_at(rate, url, body, connections, seconds, kind)
    elapsed, clients = time.monotonic() - started, _children_seconds() - clients
    spent = [after - at_first for after, at_first in zip(_processor_seconds(service.pids), spent, strict=True)]
    images, runs, busy = (
        after - at_first for after, at_first in zip(_batches(service.url, model), before, strict=True)
    )
    return {
        "offered_per_second": (seen.num_ok + seen.num_refused) / seconds,
        "served_per_second": seen.requests_per_second,
        "refused_per_second": seen.num_refused / seconds,
        "failed": seen.num_failed,
        "mean_batch": images / max(runs, 1),
        "device_busy": busy / elapsed,
        "p50_ms": 1000 * seen.p50_seconds,
        "p99_ms": 1000 * seen.p99_seconds,
        "fronts_us_a_request": 1e6 * sum(spent[:-1]) / max(1.0, images),
        "engine_process_us_a_request": 1e6 * spent[-1] / max(1.0, images),
        "client_us_a_request": 1e6 * clients / max(1.0, images),
    }


def _batches(url: str, model: str) -> tuple[float, float, float]:
    """Images, batches and seconds that the engine process has counted."""
    text = httpx.get(f"{url}/metrics").text
    names = ("batch_size_sum", "batch_size_count", "engine_busy_seconds_total")
    found = [re.search(rf'^portcullis_{name}{{model="{model}",version="1"}} (\S+)$', text, re.M) for name in names]
    return tuple(float(match[1]) if match else 0.0 for match in found)  # type: ignore[return-value]


def _children_seconds() -> float:
    """Processor time of the load generators that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _processor_seconds(pids: list[int]) -> list[float]:
    ticks = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]
    return [(int(user) + int(system)) / 100 for user, system in ticks]


def _decoded_per_second(body: Path, seconds: float) -> float:
    """What the cores decode, a process each, with nothing else to do."""
    with ProcessPoolExecutor(num_cores()) as pool:
        return sum(pool.map(_decode_for, [body] * num_cores(), [seconds] * num_cores()))


def _decode_for(body: Path, seconds: float) -> float:
    """By processor time: what one core does that is not shared with others."""
    payload, spec, count = body.read_bytes(), ImageSpec(height=JPEG_SIZE, width=JPEG_SIZE), 0
    started = time.process_time()
    while (elapsed := time.process_time() - started) < seconds:
        decode(payload, spec)
        count += 1
    return count / elapsed


def _table(part: str, found: dict[str, Any]) -> str:
    lines = [f"\n{part}: a device of {found['device']}, {found['capacity']:.0f} images/s in full batches"]
    for name, rows in (
        [("", found["rows"])] if "rows" in found else [(k, v["rows"]) for k, v in found.items() if "/" in k]
    ):
        lines += [
            name,
            f"| {' | '.join(COLUMNS)} |",
            "|" + " --- |" * len(COLUMNS),
            *(_row(row, found["capacity"]) for row in rows),
        ]
    if "share_of_decoding" in found:
        lines.append(
            f"the cores decode {found['decoded_per_second']:.0f} of these ({found['bytes']} bytes) a second; "
            f"served: {found['share_of_decoding']:.2f} of that"
        )
        lines += [f"  {name}: {value:.0f} µs" for name, value in found["processor_us"].items()]
    lines += [f"{name}: two fronts over one {v['two_over_one']:.2f}" for name, v in found.items() if "/" in name]
    return "\n".join(lines)


def _row(row: dict[str, Any], capacity: float) -> str:
    cells = [
        str(row.get("load", "")),
        str(row.get("fronts", "")),
        *(f"{row[name]:.0f}" for name in ("offered_per_second", "served_per_second")),
        f"{row['served_per_second'] / capacity:.2f}",
        f"{row['refused_per_second']:.0f}",
        f"{row['mean_batch']:.1f}",
        f"{row['device_busy']:.2f}",
        f"{row['p50_ms']:.1f}",
        f"{row['p99_ms']:.1f}",
        *(f"{row[f'{who}_us_a_request']:.0f}" for who in ("fronts", "engine_process", "client")),
    ]
    return f"| {' | '.join(cells)} |"


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
