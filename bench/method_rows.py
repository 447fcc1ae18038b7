"""The rows of the paper's table that stand in docs/methods.md, each in the section of its method."""

from pathlib import Path

from bench.marked import with_table
from portcullis_training.comparing.paper import read_table
from portcullis_training.comparing.paper_page import rows_of
from portcullis_training.comparing.paper_table import PaperTable

SECTIONS = {
    "dismax": ("dismax", "dismax+fractional"),
    "softmax": ("softmax", "softmax+fractional"),
    "isomax": ("isomax",),
    "isomaxplus": ("isomaxplus", "isomaxplus+cutmix"),
    "scaled_cosine": ("scaled_cosine",),
    "godin": ("godin", "godin_dropout", "godin_preprocessing"),
    "duq": ("duq",),
    "sngp": ("sngp",),
    "ensemble": ("softmax×3",),
}
"""Variants by the name of the marked place."""
UNMEASURED = "Its row of [the table](#the-papers-table) is not measured yet."


def with_rows(text: str, figures: Path) -> str:
    """The page with the rows of the table that a file holds, or with what is said until there is one."""
    found = read_table(figures) if figures.exists() else None
    for name, variants in SECTIONS.items():
        text = with_table(text, name, row(found, variants))
    return text


def row(found: PaperTable | None, variants: tuple[str, ...]) -> str:
    """Of one section."""
    return "\n".join(rows_of(found, variants) if found else []) or UNMEASURED
