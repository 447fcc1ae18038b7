"""Compare twins at growing budgets: where, if anywhere, does one method overtake another?

Each budget is an ordinary comparison with another number of epochs. What is done is written after every budget, so that
an early end loses nothing, and is not done again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from portcullis_training.comparing.compare import (
    Comparison,
    Say,
    Twin,
    Variant,
    train_twins,
)
from portcullis_training.comparing.report import by_title, describe_sizes, spread
from portcullis_training.config import RunConfig
from portcullis_training.errors import ConfigError
from portcullis_training.exporting import plots
from portcullis_training.exporting.report import score_title
from portcullis_training.runs import atomic

RESULTS_FILE = "budgets.json"
PAGE_FILE = "budgets.md"
PLOT_FILE = "plots/budgets.png"
MPS = "max_probability"


class Budgets(BaseModel):
    """What budgets.json holds: a comparison for each budget, the smallest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    comparisons: tuple[Comparison, ...]


def compare_budgets(
    base: RunConfig,
    budgets: Sequence[int],
    variants: Sequence[Variant],
    seeds: Sequence[int],
    runs: Path,
    output: Path,
    say: Say,
) -> Budgets:
    """Train and measure the twins at every budget, and write budgets.json, budgets.md and a plot after each."""
    if not budgets or list(budgets) != sorted(set(budgets)) or budgets[0] < 1:
        raise ConfigError(f"expected rising numbers of epochs from 1, such as 4,8,16, got {list(budgets)}")
    comparisons: list[Comparison] = []
    for epochs in budgets:
        config = base.model_copy(update={"name": f"{base.name}-{epochs}-epochs", "epochs": epochs})
        comparisons.append(train_twins(config, variants, seeds, runs, say)[0])
        _write(Budgets(comparisons=tuple(comparisons)), output)
    return Budgets(comparisons=tuple(comparisons))


def page(budgets: Budgets) -> list[str]:
    """Everything but the plot, line by line: nothing but the figures decides what it says."""
    config, seeds = budgets.comparisons[0].config, budgets.comparisons[0].seeds
    return [
        "# Twins at growing budgets",
        "",
        f"{config.backbone} on {config.data}; {config.schedule}{describe_sizes(config)}, batch {config.batch_size}, "
        f"learning rate {config.learning_rate}, weight decay {config.weight_decay}, the schedule stretched to each "
        f"number of epochs; seeds {', '.join(map(str, seeds))}. On the test images (in-distribution); detection "
        f"of other sets (out-of-distribution, OOD) in %, inside positive. "
        f"† is with the fractional regulariser. Commit {budgets.comparisons[-1].commit}.",
        "",
        *table(budgets),
        "",
        f"![Figures against epochs]({PLOT_FILE})",
    ]


def table(budgets: Budgets) -> list[str]:
    """A row for each figure and method, a column for each budget."""
    epochs = [comparison.config.epochs for comparison in budgets.comparisons]
    lines = [
        "| figure | method | " + " | ".join(f"{count} epochs" for count in epochs) + " |",
        "| --- | --- |" + " --- |" * len(epochs),
    ]
    for figure in _figures(budgets):
        for method, twins in _series(budgets).items():
            cells = [spread([figure.read(twin) for twin in same_budget], figure.digits) for same_budget in twins]
            lines.append(f"| {figure.title(twins[0][0])} | {method} | {' | '.join(cells)} |")
    return lines


@dataclass(frozen=True)
class _Figure:
    """What is told of each twin."""

    title: Callable[[Twin], str]
    """The same for all twins, but where each of them has a score of its own."""
    digits: int
    read: Callable[[Twin], float]


def _figures(budgets: Budgets) -> list[_Figure]:
    first = budgets.comparisons[0].twins[0].evaluation
    figures = [
        _Figure(lambda twin: "accuracy %", 1, lambda twin: 100 * twin.evaluation.inside.accuracy),
        _Figure(lambda twin: "ECE", 4, lambda twin: twin.evaluation.inside.ece),
    ]
    ships_mps = all(twin.evaluation.shipped_score == MPS for twin in budgets.comparisons[0].twins)
    for outside in first.outside:
        figures.append(_auroc(outside, lambda twin: twin.evaluation.shipped_score))
        figures += [] if ships_mps else [_auroc(outside, lambda twin: MPS)]
    return figures


def _auroc(outside: str, score: Callable[[Twin], str]) -> _Figure:
    return _Figure(
        lambda twin: f"AUROC of {score_title(score(twin))}, {outside}",
        1,
        lambda twin: 100 * twin.evaluation.outside[outside].by_score[score(twin)].auroc_inside_positive,
    )


def _series(budgets: Budgets) -> dict[str, list[list[Twin]]]:
    """By method, for each budget, the twins of all seeds."""
    grouped = [by_title(comparison) for comparison in budgets.comparisons]
    return {title: [twins[title] for twins in grouped] for title in grouped[0]}


def _write(budgets: Budgets, output: Path) -> None:
    (output / PLOT_FILE).parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(output / RESULTS_FILE, budgets.model_dump_json(indent=1) + "\n")
    atomic.write_text(output / PAGE_FILE, "\n".join(page(budgets)) + "\n")
    epochs = [comparison.config.epochs for comparison in budgets.comparisons]
    panels = {
        _panel_title(figure, budgets): {
            method: [sum(map(figure.read, same_budget)) / len(same_budget) for same_budget in twins]
            for method, twins in _series(budgets).items()
        }
        for figure in _figures(budgets)
    }
    (output / PLOT_FILE).write_bytes(plots.panels_against_epochs(epochs, panels))


def _panel_title(figure: _Figure, budgets: Budgets) -> str:
    """One title, or those of all methods where each has its own."""
    return " / ".join(dict.fromkeys(figure.title(twins[0][0]) for twins in _series(budgets).values()))
