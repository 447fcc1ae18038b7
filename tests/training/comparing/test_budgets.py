"""Twins at growing budgets: one table whose columns are the budgets, written after each of them."""

from pathlib import Path

import pytest

from portcullis_training.comparing import budgets as budgeting
from portcullis_training.comparing.budgets import Budgets, compare_budgets, table
from portcullis_training.comparing.compare import Comparison, parse_variant
from portcullis_training.comparing.report import tables
from portcullis_training.errors import ConfigError
from tests.training.comparing.test_compare import BASE

RESULTS = Path(__file__).parents[3] / "docs" / "results"
VARIANTS = [parse_variant("dismax"), parse_variant("dismax+fractional")]


def silent(line: str) -> None:
    """Say nothing."""


@pytest.mark.slow
def test_each_budget_is_a_column_and_trains_for_so_many_epochs(tmp_path: Path) -> None:
    found = compare_budgets(BASE, [1, 2], VARIANTS, [0], tmp_path / "runs", tmp_path / "results", silent)
    assert [comparison.config.epochs for comparison in found.comparisons] == [1, 2]
    accuracies = [[100 * twin.evaluation.inside.accuracy for twin in one.twins] for one in found.comparisons]
    assert accuracies[0] != accuracies[1]
    page = (tmp_path / "results" / "budgets.md").read_text()
    assert "| figure | method | 1 epochs | 2 epochs |" in page
    assert f"| accuracy % | DisMax | {accuracies[0][0]:.1f} | {accuracies[1][0]:.1f} |" in page
    assert f"| accuracy % | DisMax† | {accuracies[0][1]:.1f} | {accuracies[1][1]:.1f} |" in page
    auroc = found.comparisons[1].twins[1].evaluation.outside["noise:uniform"].by_score["fitted"].auroc_inside_positive
    row = next(
        line for line in page.splitlines() if line.startswith("| AUROC of fitted score, noise:uniform | DisMax† |")
    )
    assert row.endswith(f"| {100 * auroc:.1f} |")
    saved = Budgets.model_validate_json((tmp_path / "results" / "budgets.json").read_bytes())
    assert saved == found and "\n".join(table(saved)) in page
    assert (tmp_path / "results" / "plots" / "budgets.png").read_bytes().startswith(b"\x89PNG")


def test_each_twin_is_told_by_the_score_that_it_ships() -> None:
    comparison = Comparison.model_validate_json((RESULTS / "twins" / "results.json").read_bytes())
    softmax, isomaxplus = (
        next(twin for twin in comparison.twins if twin.variant == name) for name in ("softmax", "isomaxplus")
    )
    mixed = comparison.model_copy(update={"twins": (softmax, isomaxplus)})
    rows = [row.split(" | ") for row in table(Budgets(comparisons=(mixed,)))]
    for twin, title in ((softmax, "MPS"), (isomaxplus, "MDS")):
        outside, figures = next(iter(twin.evaluation.outside.items()))
        auroc = f"{100 * figures.by_score[twin.evaluation.shipped_score].auroc_inside_positive:.1f} |"
        assert [f"| AUROC of {title}, {outside}", twin.title, auroc] in rows


@pytest.mark.parametrize(
    ("data", "is_cifar10"),
    [("cifar10", True), ("npz:cifar10_train.npz,cifar10_test.npz", True), ("cifar100", False), ("digits", False)],
)
def test_the_papers_figures_stand_beside_cifar10_only(data: str, is_cifar10: bool) -> None:
    comparison = Comparison.model_validate_json((RESULTS / "twins" / "results.json").read_bytes())
    config = comparison.config.model_copy(update={"data": data})
    page = tables(comparison.model_copy(update={"config": config}))
    assert ("## The paper's figures" in page) == is_cifar10


@pytest.mark.slow
def test_the_budgets_before_a_failure_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_twins = budgeting.train_twins

    def fail_at_two(config, *others):
        if config.epochs == 2:
            raise KeyboardInterrupt
        return train_twins(config, *others)

    monkeypatch.setattr(budgeting, "train_twins", fail_at_two)
    with pytest.raises(KeyboardInterrupt):
        compare_budgets(BASE, [1, 2], VARIANTS[:1], [0], tmp_path / "runs", tmp_path / "results", silent)
    saved = Budgets.model_validate_json((tmp_path / "results" / "budgets.json").read_bytes())
    assert [comparison.config.epochs for comparison in saved.comparisons] == [1]


@pytest.mark.parametrize("budgets", [[], [0, 2], [4, 2], [2, 2]])
def test_budgets_that_do_not_rise_are_refused(tmp_path: Path, budgets: list[int]) -> None:
    with pytest.raises(ConfigError, match="rising numbers of epochs"):
        compare_budgets(BASE, budgets, VARIANTS, [0], tmp_path, tmp_path, silent)
