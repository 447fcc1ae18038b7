"""docs/results.md says what the raw figures beside it say, and they are those of the bundles that ship."""

import json
from pathlib import Path

import pytest

from service.bundle import load_bundle
from training.compare import Comparison
from training.comparison_report import tables
from training.evaluate import Evaluation
from training.report import detection_table

DOCS = Path(__file__).parents[2] / "docs"
MODELS = DOCS.parent / "models"
PAGE = (DOCS / "results.md").read_text()
COMPARISONS = sorted(path.parent.name for path in (DOCS / "results").glob("*/results.json"))
SHIPPED = sorted(path.name for path in MODELS.iterdir() if path.is_dir())


def rows(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("| ")]


@pytest.mark.parametrize("name", COMPARISONS)
def test_the_page_of_a_comparison_is_that_of_its_raw_figures(name: str) -> None:
    directory = DOCS / "results" / name
    comparison = Comparison.model_validate_json((directory / "results.json").read_bytes())
    assert (directory / "results.md").read_text().startswith("\n".join(tables(comparison)))
    expected = [line for line in rows(tables(comparison)) if line in rows(PAGE.splitlines())]
    assert len(expected) >= 2 * len({twin.title for twin in comparison.twins}), "docs/results.md shows other figures"


@pytest.mark.parametrize("name", SHIPPED)
def test_the_tables_of_a_shipped_model_are_those_of_its_raw_figures(name: str) -> None:
    evaluation = Evaluation.model_validate_json((DOCS / "results" / f"{name}.json").read_bytes())
    figures = load_bundle(MODELS / name / "1").manifest.figures
    assert (evaluation.inside.accuracy, evaluation.inside.ece) == (figures.accuracy, figures.ece)
    assert f"{figures.accuracy:.2%}" in PAGE and f"{figures.ece:.4f}" in PAGE
    for outside in evaluation.outside.values():
        shown = rows(detection_table(outside.by_score, evaluation.shipped_score))
        assert [row for row in shown if row.startswith("| **")][0] in PAGE  # noqa: RUF015


def test_raw_figures_name_no_machine() -> None:
    for path in (DOCS / "results").rglob("*.json"):
        assert "/home/" not in json.dumps(json.loads(path.read_text())) and "/work" not in path.read_text()
