"""`python -m bench.measured_tables`: the tables of what was measured into the marked places of the pages."""

import json
from pathlib import Path
from typing import Any

from bench import faults, fleet, photographs, temperatures
from bench.marked import with_table
from bench.method_rows import with_rows

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
SMALL, ENGINE = "resnet20, 32×32 PNG", "engine alone"
WAYS = {
    "portcullis serve": "`portcullis serve`, two workers",
    "ray-serve": "two replicas behind Ray's front",
    "ray-serve, own ports": "one of these replicas, by its own port",
    "ray-serve, Ray's HAProxy": "two replicas behind Ray's HAProxy",
    "engine, read and decoded": "engine, with reading and decoding",
    "score": "`score`",
    "score --on ray": "`score --on ray`",
}
"""What the results call each way, as the page does."""
RELIABILITY, FLEET = ROOT / "docs" / "reliability.md", ROOT / "docs" / "fleet.md"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
METHODS, PAPER = ROOT / "docs" / "methods.md", ROOT / "docs" / "results" / "paper" / "paper.json"


def documents() -> dict[Path, str]:
    """The pages as they should be."""
    names = ("faults", "fleet", "many", "ray_front", "offline", "photographs", "temperatures")
    read = {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in names}
    tables = {
        RELIABILITY: {"faults": faults.table(read["faults"]), "fleet": fleet.table(read["fleet"])},
        FLEET: {
            "many": many_table(read["many"]),
            "ray front": front_table(read["ray_front"][SMALL]["figures"]),
            "offline": offline_table(read["offline"][SMALL]),
        },
        BENCHMARKS: {"photographs": photographs.table(read["photographs"])},
        METHODS: {"temperatures": temperatures.table(read["temperatures"])},
    }
    pages = {page: _with_all(page.read_text(), marked) for page, marked in tables.items()}
    return {**pages, METHODS: with_rows(pages[METHODS], PAPER)}


def _with_all(text: str, tables: dict[str, str]) -> str:
    for name, table in tables.items():
        text = with_table(text, name, table)
    return text


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


def front_table(figures: dict[str, dict[str, dict[str, float]]]) -> str:
    """A row a way to the engines, a column a number of connections."""
    first = next(iter(figures.values()))
    rows = [f"| requests/s, p50 in ms, by connections | {' | '.join(first)} |", "| --- " * (1 + len(first)) + "|"]
    for way, loads in figures.items():
        cells = (
            f"{one['requests_per_second']:.0f}, {_two_digits(1000 * one['p50_seconds'])}" for one in loads.values()
        )
        rows.append(f"| {WAYS[way]} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def offline_table(results: dict[str, Any]) -> str:
    """A row a way of scoring, against the engine alone by either clock."""
    wall, processor = (results[f"images_per_second_by_{clock}"] for clock in ("the_wall", "processor_time"))
    rows = [
        "| | images/s by the wall | of the engine alone | images/s by processor time | of the engine alone |",
        "| --- | --- | --- | --- | --- |",
    ]
    for way in wall:
        cells = (f"{one[way]:.0f} | {one[way] / one[ENGINE]:.2f}" for one in (wall, processor))
        rows.append(f"| {WAYS.get(way, way)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    for path, text in documents().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
