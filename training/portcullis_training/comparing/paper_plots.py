"""Plots of a table: detection by tier with its deviations, accuracy against detection, the ablation's scores."""

from collections.abc import Callable, Mapping
from itertools import cycle

from matplotlib.figure import Figure

from portcullis_training.comparing.paper_table import (
    INSIDE_COLUMNS,
    TNR,
    Column,
    PaperTable,
    ablation_rows,
    bold_rows,
    detection,
    main_columns,
    mean_and_margin,
    paper_rows,
    tnr_columns,
)
from portcullis_training.comparing.report import by_title
from portcullis_training.exporting import plots

OURS_COLOUR, OTHERS_COLOUR = plots.OUTSIDE_COLOURS[0], plots.INSIDE_COLOUR
MARKERS = "osD^v<>Ph*"
COLOURS = [f"C{number}" for number in range(10) if number != 3]  # but red, which is DisMax's


def plots_of(found: PaperTable) -> dict[str, bytes]:
    """PNG files by the names that the page has for them."""
    return {name: draw(found) for name, (_, draw) in PLOTS[found.table].items()}


def by_tier(found: PaperTable) -> bytes:
    """A panel an outside set, a row a method: mean and deviation, each seed as a small dot, filled where it is best."""
    rows, columns = paper_rows(found), main_columns(found.tiers)[len(INSIDE_COLUMNS) :]
    figure = Figure(figsize=(2.2 + 2.6 * len(columns), 1.2 + 0.3 * len(rows)), dpi=110, layout="constrained")
    grid = figure.subplots(1, len(columns), squeeze=False, sharey=True)[0]
    for axes, column in zip(grid, columns, strict=True):
        values = [column.values(row) for row in rows]
        is_bold = bold_rows(values, is_better_high=column.is_better_high)
        for place, (row, seeds) in enumerate(zip(rows, values, strict=True)):
            colour = OURS_COLOUR if row.twins[0].variant.startswith("dismax") else OTHERS_COLOUR
            mean, margin = mean_and_margin(seeds)
            axes.plot(seeds, [place] * len(seeds), ".", color=colour, alpha=0.4, markersize=4)
            axes.errorbar(
                mean, place, xerr=margin, fmt="o", color=colour, capsize=3, markersize=6,
                markerfacecolor=colour if is_bold[place] else "white",
            )  # fmt: skip
        axes.grid(axis="x", linewidth=0.4)
        axes.set_title(column.title.replace(", ", ",\n").replace(": ", ":\n", 1), fontsize=8)
    grid[0].set_yticks(range(len(rows)), [f"{title} ({score})" for title, score in (row.labels for row in rows)])
    grid[0].tick_params(axis="y", labelsize=8)
    grid[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.supxlabel("%, mean ± deviation over the seeds; filled: the best, or the same as the best", fontsize=8)
    return plots.png(figure)


def against_accuracy(found: PaperTable) -> bytes:
    """A dot a method: accuracy, and the mean AUROC over all outside sets; deviations over the seeds along both axes."""
    accuracy, aurocs = INSIDE_COLUMNS[0], _aurocs(found)
    figure = Figure(figsize=(7.4, 4.6), dpi=110, layout="constrained")
    axes = figure.subplots()
    for number, (row, marker) in enumerate(zip(paper_rows(found), cycle(MARKERS), strict=False)):
        by_set = [column.values(row) for column in aurocs]
        means = [sum(of_seed) / len(of_seed) for of_seed in zip(*by_set, strict=True)]
        (across, wide), (up, high) = mean_and_margin(accuracy.values(row)), mean_and_margin(means)
        is_ours = row.twins[0].variant.startswith("dismax")
        axes.errorbar(
            across, up, xerr=wide, yerr=high, fmt=marker, capsize=2, linewidth=0.8, markersize=9 if is_ours else 6,
            color=OURS_COLOUR if is_ours else COLOURS[number % len(COLOURS)],
            markerfacecolor=None if number < len(MARKERS) else "white", label=" by ".join(row.labels),
        )  # fmt: skip
    axes.grid(linewidth=0.4)
    axes.set(xlabel="accuracy on test images, %", ylabel="AUROC, mean over all outside sets, %")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return plots.png(figure)


def by_score(found: PaperTable) -> bytes:
    """A panel a method, a row a score, a dot an outside set."""
    columns, rows = tnr_columns(found.tiers), ablation_rows(found)
    panels: Mapping[str, dict[str, list[float]]] = {title: {} for title in by_title(found.comparison)}
    for row in rows:
        title, score = row.labels
        panels[title][score] = [mean_and_margin(column.values(row))[0] for column in columns]
    return plots.dots_by_row(panels, list(found.tiers.by_set), f"{TNR} %, mean over the seeds")


def _aurocs(found: PaperTable) -> list[Column]:
    return [detection(name, tier, "AUROC") for name, tier in found.tiers.by_set.items()]


PLOTS: dict[str, dict[str, tuple[str, Callable[[PaperTable], bytes]]]] = {
    "paper": {
        "plots/paper-detection.png": ("Detection by tier, with deviations over the seeds", by_tier),
        "plots/paper-accuracy.png": ("Accuracy against detection", against_accuracy),
    },
    "ablation": {"plots/ablation-scores.png": (f"{TNR} by method and score", by_score)},
}
"""Of each table: what the page says of a plot, and what draws it."""
