"""ablation.md and its plot: the tables that a person reads, from what was measured and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from portcullis.bundle.manifest import FITTED
from portcullis_training.exporting import plots
from portcullis_training.exporting.report import score_title
from portcullis_training.runs import atomic

if TYPE_CHECKING:
    from portcullis_training.comparing.ablation import AblatedRun, Ablation, Row

PAGE_FILE = "ablation.md"
PLOT_FILE = "ablation.png"
CLOSE = 0.0005
"""Of an AUROC: nearer than that, two scores are called level."""


def write_page(ablation: Ablation, output: Path) -> None:
    """The page and its plot."""
    (output / PLOT_FILE).write_bytes(_plot(ablation))
    lines = [*tables(ablation), f"![AUROC of every score]({PLOT_FILE})"]
    atomic.write_text(output / PAGE_FILE, "\n".join(lines) + "\n")


def tables(ablation: Ablation) -> list[str]:
    """The page without its plot, line by line."""
    lines = [
        "# What the score is made of, and what each part is worth",
        "",
        "AUROC / TNR@TPR95 in %, in-distribution positive, against out-of-distribution (OOD) sets. One rule chose the "
        "parts and weights for every run, from training and validation images and strangers made of them; the sets "
        "below had no say. A part of weight 0 is not served. Fixed sums are z(part) + 0.1 · z(middle block). "
        f"Commit {ablation.commit}.",
        "",
    ]
    for run in ablation.runs:
        lines += _table(run)
    return [*lines, *_twins(ablation)]


def _table(run: AblatedRun) -> list[str]:
    names = list(run.rows[0].outside)
    return [
        f"## {run.name}: {run.title} on {run.backbone}",
        "",
        f"Data {run.data}, accuracy {run.accuracy:.2%}. Fitted on {run.score.fitted_on}.",
        "",
        f"| score | weight | {' | '.join(names)} | mean AUROC |",
        "| --- | --- |" + " --- |" * (len(names) + 1),
        *(_line(row) for row in run.rows),
        "",
    ]


def _line(row: Row) -> str:
    title = f"**{row_title(row)}**" if row.name == FITTED else row_title(row)
    weight = "" if row.weight is None else f"{row.weight:.2f}"
    cells = [
        f"{100 * figures.auroc_inside_positive:.1f} / {100 * figures.tnr_at_tpr95_inside_positive:.1f}"
        for figures in row.outside.values()
    ]
    return f"| {title} | {weight} | {' | '.join(cells)} | {100 * row.mean_auroc:.1f} |"


def row_title(row: Row) -> str:
    """A score for people."""
    if row.kind == "fixed":
        part, _, middle = row.name.partition("+")
        return f"{score_title(part)} + 0.1 · {score_title(middle)}"
    return "KNN, k = 50, all training images" if row.name == "knn" else score_title(row.name)


def _twins(ablation: Ablation) -> list[str]:
    """Who leads with the same additions, in words, whoever it is."""
    if len(ablation.runs) < 2:
        return []
    best = max(ablation.runs, key=lambda run: run.row(FITTED).mean_auroc)
    others = [run for run in ablation.runs if run is not best]
    return ["## With the same additions", "", *(_verdict(best, other) for other in others), ""]


def _verdict(best: AblatedRun, other: AblatedRun) -> str:
    lead = best.row(FITTED).mean_auroc - other.row(FITTED).mean_auroc
    if lead < CLOSE:
        said = f"{best.title} and {other.title} are level"
    else:
        said = f"{best.title} leads {other.title} by {100 * lead:.1f} points"
    ahead = [
        f"{name} (by {100 * gap:.1f})"
        for name, figures in best.row(FITTED).outside.items()
        if (gap := other.row(FITTED).outside[name].auroc_inside_positive - figures.auroc_inside_positive) >= CLOSE
    ]
    behind = f"; {other.title} is ahead on {', '.join(ahead)}" if ahead else f"; {other.title} is ahead on no set"
    return f"By the fitted score, in the mean over the sets, {said}{behind}."


def _plot(ablation: Ablation) -> bytes:
    panels = {}
    for run in ablation.runs:
        shown = [row for row in run.rows if row.kind != "without"]
        panels[f"{run.title}, {run.name}"] = {
            row_title(row): [100 * figures.auroc_inside_positive for figures in row.outside.values()] for row in shown
        }
    return plots.dots_by_row(panels, list(ablation.runs[0].rows[0].outside), "AUROC in %, in-distribution positive")
