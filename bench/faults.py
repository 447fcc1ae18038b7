"""`python -m bench.faults`: hurts a running service for some minutes, on each engine of its store; counts what it cost.

Each fault is a row of docs/reliability.md. Every answer is checked against NumPy by the load generator. The figures
are kept in bench/results/faults.json; --scale 0.1 takes a tenth of each fault.
"""

import argparse
import contextlib
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.fault_figures import Figures, Ground
from bench.model_faults import damaged_bundles, large_engines, shadowed, swaps
from bench.process_faults import jumping_clocks, kills, terminations
from bench.store_faults import damaged_database, full_database_disk, full_disk, killed_changes, killed_database
from tests import postgres, sabotage

RESULTS = Path(__file__).parent / "results" / "faults.json"
ENGINES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
ON_POSTGRESQL_ONLY = ("killed_database", "full_database_disk")
FAULTS: dict[str, Callable[[Ground], Figures]] = {
    function.__name__: function
    for function in (
        kills,
        swaps,
        large_engines,
        damaged_bundles,
        full_disk,
        full_database_disk,
        damaged_database,
        killed_changes,
        killed_database,
        jumping_clocks,
        terminations,
        shadowed,
    )
}


def table(results: dict[str, dict[str, Figures]]) -> str:
    """All faults in their order, a column an engine."""
    rows = [f"| fault | {' | '.join(ENGINES.values())} |", "| --- " * (1 + len(ENGINES)) + "|"]
    for name in FAULTS:
        cells = [_cell(name, results.get(engine, {}).get(name), engine) for engine in ENGINES]
        rows.append(f"| {FAULTS[name].__doc__} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(name: str, figures: Figures | None, engine: str) -> str:
    if figures is None:
        return "–" if name in ON_POSTGRESQL_ONLY and engine == "sqlite" else "not measured"
    return "; ".join(f"{key}: **{spelled(value)}**" for key, value in figures.items() if key not in ("fault", "scale"))


def spelled(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} × {spelled(count)}" for key, count in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(spelled, value))
    return f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each fault")
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=list(ENGINES))
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
    for engine in arguments.engines:
        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(postgres.cluster()) if engine == "postgresql" else None
            for name in arguments.only:
                if cluster is None and name in ON_POSTGRESQL_ONLY:
                    continue
                figures = {"fault": FAULTS[name].__doc__, "scale": arguments.scale} | tried(name, cluster, arguments)
                results.setdefault(engine, {})[name] = figures
                print(json.dumps({engine: {name: figures}}, indent=1), flush=True)
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def tried(name: str, cluster: postgres.Cluster | None, arguments: argparse.Namespace) -> Figures:
    """One fault in a directory, and a database, of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        sabotage.write_versions(Path(scratch) / "models")
        url = None if cluster is None else cluster.new_database()
        return FAULTS[name](Ground(Path(scratch), arguments.scale, cluster, url))


if __name__ == "__main__":
    main()
