"""`python -m bench.measured_tables`: what was measured of faults, fleets and methods, into the pages; tests compare."""

import json
from pathlib import Path
from typing import Any

from bench import faults, fleet
from bench.marked import with_table
from bench.method_rows import with_rows

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
RELIABILITY, FLEET = ROOT / "docs" / "reliability.md", ROOT / "docs" / "fleet.md"
METHODS, PAPER = ROOT / "docs" / "methods.md", ROOT / "docs" / "results" / "paper" / "paper.json"


def documents() -> dict[Path, str]:
    """The pages as they should be."""
    read = {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in ("faults", "fleet", "many")}
    reliability = with_table(RELIABILITY.read_text(), "faults", faults.table(read["faults"]))
    return {
        RELIABILITY: with_table(reliability, "fleet", fleet.table(read["fleet"])),
        FLEET: with_table(FLEET.read_text(), "many", many_table(read["many"])),
        METHODS: with_rows(METHODS.read_text(), PAPER),
    }


def many_table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """A column a run, a row a figure."""
    first = next(iter(results.values()))
    rows = [f"| | {' | '.join(results)} |", "| --- " * (1 + len(results)) + "|"]
    for matter, figures in first.items():
        rows.append(f"| **{matter}** |" + " |" * len(results))
        for name in figures:
            cells = " | ".join(faults.spelled(run[matter][name]) for run in results.values())
            rows.append(f"| {name} | {cells} |")
    return "\n".join(rows)


def main() -> None:
    for path, text in documents().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
