"""Puts the tables of bench/results/drift*.json into docs/drift.md, so that no figure there is typed by hand."""

import json
from pathlib import Path
from typing import NamedTuple

from bench.marked import with_table

RESULTS = Path(__file__).parent / "results" / "drift.json"
BLOCK_RESULTS = RESULTS.with_name("drift_blocks.json")
DOCUMENT = Path(__file__).parent.parent / "docs" / "drift.md"


class Table(NamedTuple):
    """Cells as they are shown."""

    head: tuple[str, ...]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_tables(text: str, results: str) -> str:
    """The document with every measured table in its marked place; each must have one."""
    for name, content in json.loads(results)["tables"].items():
        text = with_table(text, name, Table(**content).markdown())
    return text


def write(results: Path = RESULTS) -> None:
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(), results.read_text()))
