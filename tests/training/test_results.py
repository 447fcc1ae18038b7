"""docs/results.md says what the raw figures beside it say, and they are those of the bundles that ship."""

import json
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

from service.bundle import load_bundle, versions
from training import budgets
from training.compare import Comparison
from training.comparison_report import tables
from training.evaluate import Evaluation
from training.predictions import CALIBRATED
from training.report import detection_table

DOCS = Path(__file__).parents[2] / "docs"
MODELS = DOCS.parent / "models"
PAGE = (DOCS / "results.md").read_text()
COMPARISONS = sorted(path.parent.name for path in (DOCS / "results").glob("*/results.json"))
LADDERS = sorted(path.parent.name for path in (DOCS / "results").glob("*/budgets.json"))
SHIPPED = sorted(path.name for path in MODELS.iterdir() if path.is_dir())


def table_under(heading: str, lines: list[str]) -> str:
    """The first table below a heading."""
    below = lines[lines.index(heading) :]
    return "\n".join(
        takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), below))
    )


@pytest.mark.parametrize("name", COMPARISONS)
def test_the_page_of_a_comparison_is_that_of_its_raw_figures(name: str) -> None:
    directory = DOCS / "results" / name
    comparison = Comparison.model_validate_json((directory / "results.json").read_bytes())
    assert (directory / "results.md").read_text().startswith("\n".join(tables(comparison)))
    for heading in ("## Classification and calibration", "## AUROC at a glance"):
        assert table_under(heading, tables(comparison)) in PAGE


@pytest.mark.parametrize("name", LADDERS)
def test_the_page_of_growing_budgets_is_that_of_its_raw_figures(name: str) -> None:
    directory = DOCS / "results" / name
    found = budgets.Budgets.model_validate_json((directory / "budgets.json").read_bytes())
    assert (directory / "budgets.md").read_text() == "\n".join(budgets.page(found)) + "\n"
    assert "\n".join(budgets.table(found)) in PAGE


@pytest.mark.parametrize("name", SHIPPED)
def test_the_tables_of_a_shipped_model_are_those_of_its_raw_figures(name: str) -> None:
    evaluation = Evaluation.model_validate_json((DOCS / "results" / f"{name}.json").read_bytes())
    newest = max(versions(MODELS, name))
    figures = load_bundle(MODELS / name / str(newest)).manifest.figures
    assert (evaluation.inside.accuracy, evaluation.inside.ece) == (figures.accuracy, figures.ece)
    assert f"{figures.accuracy:.2%}" in PAGE and f"{figures.ece:.4f}" in PAGE
    for outside in evaluation.outside.values():
        plain = {score: found for score, found in outside.by_score.items() if not score.endswith(CALIBRATED)}
        assert "\n".join(detection_table(plain, evaluation.shipped_score)) in PAGE


def test_raw_figures_name_no_machine() -> None:
    for path in (DOCS / "results").rglob("*.json"):
        assert "/home/" not in json.dumps(json.loads(path.read_text())) and "/work" not in path.read_text()
