"""`python -m bench.photographs`: the model that `make serve` answers with, on a photograph of 224 pixels.

The raw engine and the service side by side, as in `python -m bench`; the service also decodes a JPEG for every request,
which the raw engine does not: what that costs is measured apart.
"""

import argparse
import io
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from bench import contenders, load, machine
from bench.__main__ import RESULTS, medians, one_round, start_seconds
from portcullis.bundle import files as bundles
from portcullis.bundle.engine import Engine
from portcullis.bundle.files import load_bundle
from portcullis.bundle.preprocess import decode

ROOT = Path(__file__).parent.parent
SIDE, QUALITY = 224, 90
NUM_CALLS = 100


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.photographs", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; figures are medians over them")
    parser.add_argument("--out", type=Path, default=RESULTS / "photographs.json")
    parser.add_argument("--no-load", action="store_true", help="processor time alone, for a machine that is busy")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        bundle, body = _default_bundle(directory / "models"), directory / "photograph.jpg"
        body.write_bytes(_photograph())
        if arguments.no_load:
            print(processor_table(_processor_seconds(bundle, body.read_bytes())))
            return
        load.require()
        results = measure(directory, bundle, body, arguments.seconds, arguments.rounds)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))


def measure(directory: Path, bundle: Path, body: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """Ratios are taken within a round, where the machine was the same."""
    here = machine.found([bundle])
    found = [one_round(directory, bundle, body, here, 1, seconds) for _ in range(rounds)]
    with contenders.portcullis(directory / "models") as (url, process):
        load.run(f"{url}/v1/predict", body, here.connections[-1], seconds)
        resident = max(map(contenders.resident_bytes, contenders.children(process)))
    return {
        "bundle": "/".join(bundle.parts[-2:]),
        "body_bytes": body.stat().st_size,
        "num_processes": here.num_processes,
        "connections": here.connections,
        "rounds": found,
        "median": medians(found),
        "processor_seconds": _processor_seconds(bundle, body.read_bytes()),
        "resident": resident,
        "start_seconds": start_seconds(directory),
    }


def table(results: dict[str, Any]) -> str:
    """The figures for people, as docs/benchmarks.md shows them."""
    median, connections = results["median"], results["connections"]

    def listed(name: str, scale: float, digits: int) -> str:
        return " / ".join(f"{scale * median[f'{name}_{count}']:.{digits}f}" for count in connections)

    rows = {
        "raw engine, one process a core": f"{median['raw_batch_1']:.0f} images/s, "
        f"{1000 * median['raw_seconds_of_one']:.1f} ms for one image",
        f"requests/s at {' / '.join(map(str, connections))} connections": listed("requests_per_second", 1, 0),
        "p50, ms": listed("p50", 1000, 1),
        "p99, ms": listed("p99", 1000, 1),
        f"share of the raw engine at {connections[-1]} connections": f"{median['share_of_raw']:.2f}",
        "p50 at 1 connection over one raw image": f"{median['p50_1_over_raw']:.2f}",
        "memory of a worker": f"{results['resident'] / 2**20:.0f} MB",
        "ready after": f"{results['start_seconds']:.1f} s",
    }
    lines = ["| | measured |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n".join([*lines, "", processor_table(results["processor_seconds"])])


def processor_table(seconds: dict[str, float]) -> str:
    """Of one photograph."""
    return "\n".join(
        ["| | ms |", "| --- | --- |", *(f"| {name} | {1000 * spent:.2f} |" for name, spent in seconds.items())]
    )


def _default_bundle(models: Path) -> Path:
    """The newest version of the default model, alone in a models directory."""
    name = bundles.default_name(ROOT / "models")
    assert name is not None
    version = str(bundles.versions(ROOT / "models", name)[-1])
    return Path(shutil.copytree(ROOT / "models" / name / version, models / name / version))


def _photograph() -> bytes:
    stream = io.BytesIO()
    with Image.open(ROOT / "docs" / "examples" / "cat.jpg") as picture:
        ImageOps.fit(picture, (SIDE, SIDE)).save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


def _processor_seconds(bundle: Path, body: bytes) -> dict[str, float]:
    """Of one photograph on one thread: a busy machine makes it longer by its cold caches only."""
    loaded = load_bundle(bundle)
    engine, pixels = Engine(loaded), decode(body, loaded.manifest.image)[None]
    return {
        "engine": _median_seconds(lambda: engine.run(pixels)),
        "decoding and resizing": _median_seconds(lambda: decode(body, loaded.manifest.image)),
    }


def _median_seconds(function: Callable[[], object]) -> float:
    times = []
    for _ in range(NUM_CALLS):
        started = time.process_time()
        function()
        times.append(time.process_time() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
