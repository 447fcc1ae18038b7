"""docs/results.md says what the raw figures beside it say, and they are those of the bundles that ship."""

import json
import statistics
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

from portcullis.bundle.files import load_bundle, versions
from portcullis_training.comparing import budgets, paper, paper_page, paper_plots
from portcullis_training.comparing.ablation import Ablation
from portcullis_training.comparing.compare import Comparison
from portcullis_training.comparing.report import tables
from portcullis_training.exporting.report import detection_table
from portcullis_training.measuring.evaluation import Evaluation
from portcullis_training.measuring.predictions import CALIBRATED

DOCS = Path(__file__).parents[3] / "docs"
MODELS = DOCS.parent / "models"
PAGE = (DOCS / "results.md").read_text()
COMPARISONS = sorted(path.parent.name for path in (DOCS / "results").glob("*/results.json"))
TABLES = sorted(
    path for path in (DOCS / "results").glob("*/*.json") if "tiers" in json.loads(path.read_text())
)  # `ablate` has an ablation.json too, of another kind
LADDERS = sorted(path.parent.name for path in (DOCS / "results").glob("*/budgets.json"))
SHIPPED = sorted(
    (path.name, number) for path in MODELS.iterdir() if path.is_dir() for number in versions(MODELS, path.name)
)


def table_under(heading: str, lines: list[str]) -> str:
    """The first table below a heading."""
    below = lines[lines.index(heading) :]
    return "\n".join(
        takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), below))
    )


def raw_figures(name: str, version: int) -> Evaluation:
    return Evaluation.model_validate_json((DOCS / "results" / f"{name}-{version}.json").read_bytes())


@pytest.mark.parametrize("name", COMPARISONS)
def test_the_page_of_a_comparison_is_that_of_its_raw_figures(name: str) -> None:
    directory = DOCS / "results" / name
    comparison = Comparison.model_validate_json((directory / "results.json").read_bytes())
    assert (directory / "results.md").read_text().startswith("\n".join(tables(comparison)))
    for heading in ("## Classification and calibration", "## AUROC at a glance"):
        assert table_under(heading, tables(comparison)) in PAGE


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_page_of_a_table_is_that_of_its_raw_figures(path: Path) -> None:
    """`portcullis-train page` writes both. Where ours is not the paper's best, the page says so by itself."""
    found = paper.read_table(path)
    assert found.table == path.stem
    text = path.with_suffix(".md").read_text()
    assert text == "\n".join(paper_page.page(found)) + "\n"
    assert all((path.parent / name).read_bytes().startswith(b"\x89PNG") for name in paper_plots.PLOTS[found.table])


@pytest.mark.parametrize("name", LADDERS)
def test_the_page_of_growing_budgets_is_that_of_its_raw_figures(name: str) -> None:
    directory = DOCS / "results" / name
    found = budgets.Budgets.model_validate_json((directory / "budgets.json").read_bytes())
    assert (directory / "budgets.md").read_text() == "\n".join(budgets.page(found)) + "\n"
    assert "\n".join(budgets.table(found)) in PAGE


@pytest.mark.parametrize(("name", "version"), SHIPPED)
def test_the_tables_of_a_shipped_model_are_those_of_its_raw_figures(name: str, version: int) -> None:
    evaluation = raw_figures(name, version)
    figures = load_bundle(MODELS / name / str(version)).manifest.figures
    as_measured = (evaluation.inside.accuracy, evaluation.inside.ece)
    if evaluation.inside.ece_at_temperature_one is None:  # of the served graph, on another machine than the run's
        assert as_measured == pytest.approx((figures.accuracy, figures.ece), abs=1e-6)
    else:
        assert as_measured == (figures.accuracy, figures.ece)
    assert f"{figures.accuracy:.2%}" in PAGE and f"{figures.ece:.4f}" in PAGE
    for outside in evaluation.outside.values():
        plain = {score: found for score, found in outside.by_score.items() if not score.endswith(CALIBRATED)}
        assert "\n".join(detection_table(plain, evaluation.shipped_score)) in PAGE


def test_the_twin_of_version_3_stands_beside_it_as_measured() -> None:
    directory = DOCS / "results"
    twins = {
        title: Evaluation.model_validate_json((directory / f"cifar10-whitened-3{suffix}.json").read_bytes())
        for title, suffix in (("DisMax", ""), ("SoftMax", "-softmax"))
    }
    table = table_under("### Version 3, half of the epochs", PAGE.splitlines()).splitlines()[2:]
    shown = {
        "MMLES": "mmles", "Energy": "energy", "fitted score": "fitted", "norm × gap": "norm_gap",
        "Mahalanobis, features": "features", "neighbours": "neighbours", "MPS": "max_probability",
    }  # fmt: skip
    assert len(table) == 2 * len(shown) - 2
    for line in table:
        title, score, *cells = line.strip("| ").split(" | ")
        figures = [100 * one.by_score[shown[score]].auroc_inside_positive for one in twins[title].outside.values()]
        assert cells == [*(f"{figure:.1f}" for figure in figures), f"{statistics.mean(figures):.2f}"]
    assert f"{twins['SoftMax'].inside.accuracy:.2%}" in PAGE and f"{twins['SoftMax'].inside.ece:.4f}" in PAGE


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("### Version 4 beside its SoftMax twin", "ablation-cifar10"),
        ("### A network half as wide again", "ablation-cifar10-wide"),
    ],
)
def test_twins_stand_beside_each_other_as_their_ablation_has_them(heading: str, name: str) -> None:
    dismax, softmax = Ablation.model_validate_json((DOCS / "results" / name / "ablation.json").read_bytes()).runs
    names = {
        "MMLES": "mmles", "Energy": "energy", "fitted score": "fitted", "norm × gap": "norm_gap",
        "Mahalanobis, features": "features", "Mahalanobis, middle block": "middle", "neighbours": "neighbours",
        "MPS": "max_probability", "KNN, k = 50, all training images": "knn",
    }  # fmt: skip
    table = table_under(heading, PAGE.splitlines()).splitlines()[2:]
    assert len(table) == 2 * len(names) - 2
    for line in table:
        title, score, *cells = line.strip("| ").split(" | ")
        row = {"DisMax": dismax, "SoftMax": softmax}[title].row(names[score])
        figures = [100 * one.auroc_inside_positive for one in row.outside.values()]
        assert cells == [*(f"{figure:.1f}" for figure in figures), f"{100 * row.mean_auroc:.2f}"]
    assert f"{dismax.accuracy:.2%}" in PAGE and f"{softmax.accuracy:.2%}" in PAGE


def test_the_twin_of_version_4_is_one_of_what_ships() -> None:
    ablation = Ablation.model_validate_json((DOCS / "results" / "ablation-cifar10" / "ablation.json").read_bytes())
    assert raw_figures("cifar10-whitened", 4).inside.accuracy == ablation.runs[0].accuracy


def test_sets_that_nobody_had_looked_at_stand_on_the_page_as_measured() -> None:
    file = DOCS / "results" / "cifar10-whitened-4-unseen.json"
    outside = Evaluation.model_validate_json(file.read_bytes()).outside.values()
    for title, score in (("**fitted score**", "fitted"), ("MMLES", "mmles")):
        found = [one.by_score[score] for one in outside]
        cells = [
            f"{100 * one.auroc_inside_positive:.1f} / {100 * one.tnr_at_tpr95_inside_positive:.1f}" for one in found
        ]
        assert f"| {title} | {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize("name", ["ablation-cifar10", "ablation-trash"])
def test_the_first_table_of_an_ablation_stands_on_the_page(name: str) -> None:
    lines = (DOCS / "results" / name / "ablation.md").read_text().splitlines()
    assert table_under(next(line for line in lines if line.startswith("## ")), lines) in PAGE


def temperature_cost(name: str, version: int, score: str) -> list[float]:
    """Points of AUROC that a shipped model's score loses on logits / temperature, by outside set."""
    evaluation = raw_figures(name, version)
    found = [outside.by_score for outside in evaluation.outside.values()]
    return [100 * (by[score].auroc_inside_positive - by[score + CALIBRATED].auroc_inside_positive) for by in found]


def test_both_pages_tell_what_the_temperature_costs_mmles() -> None:
    methods = " ".join((DOCS / "methods.md").read_text().split())
    ours, theirs = temperature_cost("cifar10-whitened", 2, "mmles"), temperature_cost("fashion-mnist", 1, "mmles")
    at_most = f"at most {max(ours):.1f} points of AUROC on `cifar10-whitened`, {max(theirs):.1f} on `fashion-mnist`"
    assert at_most in methods
    assert f"by {sorted(ours)[1]:.1f} to {max(ours):.1f} on three sets and not on CIFAR-100" in PAGE
    assert f"MMLES loses {max(theirs):.1f} points on both sets" in PAGE and max(theirs) - min(theirs) < 0.05
    assert {round(cost) for cost in temperature_cost("fashion-mnist", 1, "max_probability")} <= {15, 16}


@pytest.mark.parametrize("name", ["shipped", "twins"])
def test_calibration_is_level_at_both_budgets_as_the_page_says(name: str) -> None:
    comparison = Comparison.model_validate_json((DOCS / "results" / name / "results.json").read_bytes())
    softmax, dismax = ([t.evaluation.inside for t in comparison.twins if t.variant == v] for v in ("softmax", "dismax"))
    standard_error = (softmax[0].accuracy * (1 - softmax[0].accuracy) / softmax[0].num_images) ** 0.5
    means = [sum(inside.ece for inside in group) / len(group) for group in (softmax, dismax)]
    assert abs(means[0] - means[1]) < standard_error
    assert "Calibration is level at both." in PAGE


def test_raw_figures_name_no_machine() -> None:
    for path in (DOCS / "results").rglob("*.json"):
        assert "/home/" not in json.dumps(json.loads(path.read_text())) and "/work" not in path.read_text()
