"""`python -m bench.faults`: hurts a running service for some minutes and counts what it cost.

Each fault is a row of docs/reliability.md. Every answer is checked against NumPy by the load generator. The figures
are kept in bench/results/faults.json; --scale 0.1 takes a tenth of each fault.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.fault_figures import Figures
from bench.model_faults import damaged_bundles, large_engines, shadowed, swaps
from bench.process_faults import (
    damaged_database,
    full_disk,
    jumping_clocks,
    killed_changes,
    kills,
    terminations,
)
from tests import sabotage

RESULTS = Path(__file__).parent / "results" / "faults.json"
FAULTS: dict[str, Callable[[Path, float], Figures]] = {
    function.__name__: function
    for function in (
        kills,
        swaps,
        large_engines,
        damaged_bundles,
        full_disk,
        damaged_database,
        killed_changes,
        jumping_clocks,
        terminations,
        shadowed,
    )
}


def table(results: dict[str, Figures]) -> str:
    """All faults in their order."""
    rows = ["| fault | measured |", "| --- | --- |"]
    for name in FAULTS:
        figures = {key: value for key, value in results.get(name, {}).items() if key not in ("fault", "scale")}
        shown = "; ".join(f"{key}: **{_spelled(value)}**" for key, value in figures.items())
        rows.append(f"| {FAULTS[name].__doc__} | {shown or 'not measured'} |")
    return "\n".join(rows)


def _spelled(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_spelled, value))
    return f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each fault")
    parser.add_argument("--only", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument(
        "--table", action="store_true", help="only print what was measured last, as docs/reliability.md has it"
    )
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.table:
        print(table(results))
        return
    random.seed(0)
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch)
            sabotage.write_versions(directory / "models")
            results[name] = {"fault": FAULTS[name].__doc__, "scale": arguments.scale} | FAULTS[name](
                directory, arguments.scale
            )
        print(json.dumps({name: results[name]}, indent=1), flush=True)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
