"""Compare twins at growing budgets: where, if anywhere, does one method overtake another?

Each budget is an ordinary comparison with another number of epochs. What is done is written after every budget, so that
an early end loses nothing, and is not done again.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from training import atomic, plots
from training.compare import Comparison, Say, Twin, Variant, train_twins
from training.comparison_report import by_title, describe_sizes, spread
from training.errors import ConfigError
from training.recipes import RunConfig
from training.report import score_title

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
        f"number of epochs; seeds {', '.join(map(str, seeds))}. On the test images; detection in %, inside positive. "
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
    for (title, digits), read in _figures(budgets).items():
        for method, twins in _series(budgets).items():
            cells = [spread([read(twin) for twin in same_budget], digits) for same_budget in twins]
            lines.append(f"| {title} | {method} | {' | '.join(cells)} |")
    return lines


def _figures(budgets: Budgets) -> dict[tuple[str, int], Callable[[Twin], float]]:
    """What is told of each twin: its title and the digits to print, and how to read it."""
    first = budgets.comparisons[0].twins[0].evaluation
    figures: dict[tuple[str, int], Callable[[Twin], float]] = {
        ("accuracy %", 1): lambda twin: 100 * twin.evaluation.inside.accuracy,
        ("ECE", 4): lambda twin: twin.evaluation.inside.ece,
    }
    for outside in first.outside:
        for score in dict.fromkeys((first.shipped_score, MPS)):
            figures[f"AUROC of {score_title(score)}, {outside}", 1] = _auroc(outside, score)
    return figures


def _auroc(outside: str, score: str) -> Callable[[Twin], float]:
    return lambda twin: 100 * twin.evaluation.outside[outside].by_score[score].auroc_inside_positive


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
        title: {
            method: [sum(map(read, same_budget)) / len(same_budget) for same_budget in twins]
            for method, twins in _series(budgets).items()
        }
        for (title, _), read in _figures(budgets).items()
    }
    (output / PLOT_FILE).write_bytes(plots.panels_against_epochs(epochs, panels))
