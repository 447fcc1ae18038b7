"""`python -m bench.fleet`: a real fleet on this machine, hurt under load; the table of docs/reliability.md.

Three instances in network namespaces of their own behind HAProxy, one PostgreSQL behind them, every answer checked
against NumPy. Needs root, iproute2, haproxy and postgresql. Kept in bench/results/fleet.json.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.fault_figures import Figures
from bench.faults import spelled
from bench.fleet_drift import dimmer_in_a_third, strangers_in_a_third
from bench.fleet_trials import cut_off_instance, gate_changes, killed_instance, restarted_database, swaps
from tests.real_fleet import RealFleet, lack

RESULTS = Path(__file__).parent / "results" / "fleet.json"
TRIALS: dict[str, tuple[Callable[[RealFleet, int], Figures], int]] = {
    trial.__name__: (trial, number)
    for trial, number in (
        (gate_changes, 200),
        (swaps, 200),
        (killed_instance, 6),
        (cut_off_instance, 3),
        (restarted_database, 5),
        (strangers_in_a_third, 2000),
        (dimmer_in_a_third, 2000),
    )
}
"""Each with its number at full scale: how often it is done, or with how many images it begins."""


def table(results: dict[str, Figures]) -> str:
    """All trials in their order."""
    rows = ["| what | measured |", "| --- | --- |"]
    for name, (trial, _) in TRIALS.items():
        shown = "; ".join(f"{key}: **{spelled(value)}**" for key, value in results.get(name, {}).items())
        rows.append(f"| {trial.__doc__} | {shown or 'not measured'} |")
    return "\n".join(rows)


def run(directory: Path, scale: float, only: list[str]) -> dict[str, Figures]:
    """The trials, one after the other, of one fleet."""
    results = {}
    with RealFleet(directory) as fleet:
        for name in only:
            trial, number = TRIALS[name]
            results[name] = trial(fleet, max(1, round(number * scale)))
            print(json.dumps({name: results[name]}, indent=1), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each")
    parser.add_argument("--only", nargs="*", choices=TRIALS, default=list(TRIALS))
    parser.add_argument("--table", action="store_true", help="only print what was measured last")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.table:
        print(table(results))
        return
    if missing := lack():
        raise SystemExit(missing)
    with tempfile.TemporaryDirectory() as scratch:
        results |= run(Path(scratch), arguments.scale, arguments.only)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
