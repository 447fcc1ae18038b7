"""Plots as PNG bytes. Knows arrays and matplotlib; no screen, no global state."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from portcullis_training.measuring.metrics import (
    NUM_BINS,
    Array,
    Indices,
    RiskCoverage,
    reliability_bins,
)

NUM_HISTOGRAM_BINS = 80
NUM_PANEL_COLUMNS = 2
MAX_NAMED_CLASSES = 60
"""A confusion matrix of more classes has colours alone: names would lie upon one another."""
INSIDE_COLOUR = "#2a6f97"
OUTSIDE_COLOURS = ("#d1495b", "#edae49", "#7d5ba6", "#66a182", "#8d6b4f", "#4f4f4f")
OUTER_SHARE = 0.002
"""Share of the scores cut from each end of a histogram, so that one stray value does not flatten the rest."""


def reliability_diagram(probabilities: Array, labels: Indices, title: str) -> bytes:
    """Accuracy against probability, bin by bin; on the diagonal a probability means what it says."""
    bins = reliability_bins(probabilities, labels)
    centres = (np.arange(NUM_BINS) + 0.5) / NUM_BINS
    is_filled = bins.num_images > 0
    figure, (upper, lower) = _figure(2, heights=(3, 1))
    upper.plot([0, 1], [0, 1], color="#999999", linestyle="--", linewidth=1)
    upper.bar(centres[is_filled], bins.accuracy[is_filled], width=0.9 / NUM_BINS, color=INSIDE_COLOUR, label="accuracy")
    upper.plot(bins.mean_probability[is_filled], bins.accuracy[is_filled], "o", color="#d1495b", markersize=3,
               label="mean probability of the bin")  # fmt: skip
    upper.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1), title=title)
    upper.legend(loc="upper left", frameon=False)
    lower.bar(centres, bins.num_images / bins.num_images.sum(), width=0.9 / NUM_BINS, color="#9db4c0")
    lower.set(xlabel="probability of the answered class", ylabel="share", xlim=(0, 1))
    return png(figure)


# Where a legend goes is said here: to look for the emptiest place takes longer the more there is to draw.


def score_histograms(
    inside: Array, outside: Mapping[str, Array], xlabel: str, title: str, threshold: float | None = None
) -> bytes:
    """Densities of inside and outside images over one axis, with the gate's threshold where there is one."""
    figure, (axes,) = _figure(1)
    edges = _edges(inside, outside)
    axes.hist(inside, bins=edges, density=True, color=INSIDE_COLOUR, alpha=0.5, label="in-distribution")
    for index, (name, scores) in enumerate(outside.items()):
        colour = OUTSIDE_COLOURS[index % len(OUTSIDE_COLOURS)]
        axes.hist(scores, bins=edges, density=True, histtype="step", color=colour, linewidth=1.4, label=name)
    if threshold is not None:
        axes.axvline(threshold, color="black", linewidth=1, linestyle=":", label="accept95")
    axes.set(xlabel=xlabel, ylabel="density", title=title)
    figure.legend(loc="outside right upper", frameon=False)
    return png(figure)


def risk_coverage_curves(curves: Mapping[str, RiskCoverage], title: str) -> bytes:
    """Share of wrong answers among the accepted, against the share accepted."""
    figure, (axes,) = _figure(1)
    for name, curve in curves.items():
        axes.plot(curve.coverage, curve.risk, linewidth=1.4, label=name)
    axes.set(
        xlabel="coverage: share of test images accepted", ylabel="risk: share of these answered wrongly", title=title
    )
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", frameon=False)  # risk rises with coverage
    return png(figure)


def confusion_matrix(counts: Indices, class_names: Sequence[str], title: str) -> bytes:
    """Shares of the images of each class (row) that are answered with each class (column), numbers where they fit."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    num_classes = len(class_names)
    side = min(14.0, 3.2 + 0.24 * num_classes)
    figure = Figure(figsize=(side + 0.6, side), dpi=110, layout="constrained")
    axes = figure.subplots()
    drawn = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(drawn, ax=axes, fraction=0.04, label="share of the class")
    if num_classes <= MAX_NAMED_CLASSES:
        axes.set_xticks(range(num_classes), class_names, rotation=90, fontsize=7)
        axes.set_yticks(range(num_classes), class_names, fontsize=7)
        for row, column in np.argwhere(counts):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=6, color=colour)
    axes.set(xlabel="answered", ylabel="class of the image", title=title)
    return png(figure)


def panels_against_epochs(epochs: Sequence[int], panels: Mapping[str, Mapping[str, Sequence[float]]]) -> bytes:
    """A panel a figure, a line a method, over the epochs trained for."""
    num_rows = -(-len(panels) // NUM_PANEL_COLUMNS)
    figure = Figure(figsize=(10, 2.4 * num_rows), dpi=110, layout="constrained")
    grid = list(figure.subplots(num_rows, NUM_PANEL_COLUMNS, squeeze=False).flat)
    for axes, (title, lines) in zip(grid, panels.items(), strict=False):
        for name, values in lines.items():
            axes.plot(epochs, values, "o-", linewidth=1.4, markersize=4, label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(epochs, [str(count) for count in epochs])
        axes.set_title(title, fontsize=9)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.axes[0].legend(loc="lower right", frameon=False)
    figure.supxlabel("epochs", fontsize=9)
    return png(figure)


def dots_by_row(panels: Mapping[str, Mapping[str, Sequence[float]]], names: Sequence[str], xlabel: str) -> bytes:
    """A panel below the other, a row for each of its entries, in it a dot for each of the names."""
    num_rows = [len(rows) for rows in panels.values()]
    figure = Figure(figsize=(8, 0.6 + 0.25 * sum(num_rows) + 0.5 * len(panels)), dpi=110, layout="constrained")
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=num_rows, sharex=True)[:, 0]
    for axes, (title, rows) in zip(grid, panels.items(), strict=True):
        for index, name in enumerate(names):
            colour = OUTSIDE_COLOURS[index % len(OUTSIDE_COLOURS)]
            axes.plot([values[index] for values in rows.values()], range(len(rows)), "o", color=colour, label=name)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.invert_yaxis()
        axes.grid(axis="x", linewidth=0.4)
        axes.set_title(title, fontsize=9)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False, fontsize=8)
    grid[-1].set_xlabel(xlabel)
    return png(figure)


def _edges(inside: Array, outside: Mapping[str, Array]) -> list[float]:
    ends = [np.quantile(scores, [OUTER_SHARE, 1 - OUTER_SHARE]) for scores in (inside, *outside.values())]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    margin = max(high - low, 1e-6) * 0.02
    return np.linspace(low - margin, high + margin, NUM_HISTOGRAM_BINS).tolist()


def _figure(num_rows: int, heights: tuple[int, ...] = (1,)) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(6.4, 4.2), dpi=110, layout="constrained")
    axes = figure.subplots(num_rows, 1, squeeze=False, height_ratios=heights, sharex=True)
    return figure, list(axes[:, 0])


def png(figure: Figure) -> bytes:
    """A figure as a file, with nothing in it about this machine."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()
