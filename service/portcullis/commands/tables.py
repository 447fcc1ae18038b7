"""Prints rows for a person, or as JSON for a program."""

import json
from collections.abc import Iterable, Sequence
from typing import Any


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as they need to be, two spaces between."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_json(value: Any) -> None:
    """One JSON value a line, so that lines can be piped on."""
    print(json.dumps(value, ensure_ascii=False))


def number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
