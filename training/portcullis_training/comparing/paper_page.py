"""The page of a table as the paper has it: its columns, its scores, its rule for "the same", and all other scores."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from portcullis_training.comparing.compare import Comparison, Twin, parse_variant
from portcullis_training.comparing.report import FIGURES, by_title, describe_sizes, spread
from portcullis_training.exporting.report import score_title
from portcullis_training.fitting.ensemble import method_of
from portcullis_training.measuring.predictions import CALIBRATED, WITHOUT
from portcullis_training.recipes import RunConfig

Table = Literal["paper", "ablation"]
NEAR, FAR, VERY_FAR = "near", "far", "very far"
TIER_FIGURES = {NEAR: "AUPR out", FAR: "AUROC", VERY_FAR: "AUPR out"}
"""What the paper prints of each tier."""
TNR = "TNR@TPR95"
MPS, MDS, MMLES = "max_probability", "max_logit", "mmles"
TIMED = "batch of 32"


class Tiers(BaseModel):
    """Outside sets by how far they are from the inside images: data specs, or the names that tables print."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    near: tuple[str, ...]
    far: tuple[str, ...]
    very_far: tuple[str, ...]

    @property
    def specs(self) -> tuple[str, ...]:
        """All sets, the nearest first."""
        return (*self.near, *self.far, *self.very_far)

    @property
    def by_set(self) -> dict[str, str]:
        """The tier of each set."""
        named = ((NEAR, self.near), (FAR, self.far), (VERY_FAR, self.very_far))
        return {name: tier for tier, names in named for name in names}


class PaperTable(BaseModel):
    """What paper.json or ablation.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: Table
    tiers: Tiers
    comparison: Comparison


@dataclass(frozen=True)
class Row:
    """A method by some scores, all seeds."""

    labels: tuple[str, str]
    twins: Sequence[Twin]
    score_at: Callable[[str], str]
    """The score for sets of a tier."""


@dataclass(frozen=True)
class Column:
    """One figure of every row."""

    title: str
    digits: int
    read: Callable[[Twin, Row], float]
    is_better_high: bool = True

    def values(self, row: Row) -> list[float]:
        """Of all seeds; none where it was not measured, such as a cost that would have taken too long."""
        try:
            return [self.read(twin, row) for twin in row.twins]
        except KeyError:
            return []


def page(found: PaperTable) -> list[str]:
    """The whole page: nothing but the figures decides what it says."""
    sets = found.tiers.by_set
    tnr = [_detection(name, tier, TNR) for name, tier in sets.items()]
    if found.table == "ablation":
        tables = [f"## Ablation: {TNR}", "", *render(("method", "score"), ablation_rows(found), tnr), ""]
    else:
        rows, first = paper_rows(found), ("method", "score near / far")
        detection = [_detection(name, tier, TIER_FIGURES[tier]) for name, tier in sets.items()]
        tables = ["## The table", "", *render(first, rows, [*INSIDE_COLUMNS, *detection]), ""]
        tables += [f"## {TNR}", "", *render(first, rows, tnr), ""]
    return [*_head(found), *tables, *_long_form(found)]


def paper_rows(found: PaperTable) -> list[Row]:
    """Each method by the scores that the paper has for it."""
    return [
        Row((title, " / ".join(dict.fromkeys(map(score_title, scores)))), twins, _near_and_far(*scores))
        for title, twins in by_title(found.comparison).items()
        for scores in [paper_scores(twins[0].variant)]
    ]


def ablation_rows(found: PaperTable) -> list[Row]:
    """Each method by MPS, by MDS, by MMLES, and by MPS near and MMLES far."""
    pairs = ((MPS, MPS), (MDS, MDS), (MMLES, MMLES), (MPS, MMLES))
    return [
        Row((title, " / ".join(dict.fromkeys(map(score_title, pair)))), twins, _near_and_far(*pair))
        for title, twins in by_title(found.comparison).items()
        for pair in pairs
    ]


def paper_scores(variant: str) -> tuple[str, str]:
    """The scores for near and for far sets that the paper has for a method."""
    parsed = parse_variant(variant)
    method = method_of(RunConfig(method=parsed.method, members=parsed.members))
    return method.paper_scores or (method.score_name, method.score_name)


def bold_rows(values: Sequence[Sequence[float]], *, is_better_high: bool) -> list[bool]:
    """Which rows are best: the one of the best mean, and those that perform the same as it.

    The paper's rule: two perform the same where their means differ by less than the sum of their margins.
    """
    known = {number: _mean_and_margin(row) for number, row in enumerate(values) if row}
    if not known:
        return [False] * len(values)
    best, margin = (max if is_better_high else min)(known.values(), key=lambda found: found[0])
    return [
        number in known and (known[number][0] == best or abs(known[number][0] - best) < known[number][1] + margin)
        for number in range(len(values))
    ]


def render(first: tuple[str, str], rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """Markdown: mean ± deviation in every cell, what is best in bold."""
    cells = [[column.values(row) for row in rows] for column in columns]
    bold = [
        bold_rows(values, is_better_high=column.is_better_high)
        for column, values in zip(columns, cells, strict=True)
    ]  # fmt: skip
    titles = [*first, *(column.title for column in columns)]
    lines = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    for number, row in enumerate(rows):
        shown = []
        for column, values, is_bold in zip(columns, cells, bold, strict=True):
            text = spread(values[number], column.digits) if values[number] else "–"
            shown.append(f"**{text}**" if is_bold[number] else text)
        lines.append("| " + " | ".join([*row.labels, *shown]) + " |")
    return lines


INSIDE_COLUMNS = (
    Column("accuracy %", 1, lambda twin, row: 100 * twin.evaluation.inside.accuracy),
    Column("efficiency %", 1, lambda twin, row: 100 / twin.evaluation.inference_cost_relative_to_softmax[TIMED]),
    Column("ECE", 4, lambda twin, row: twin.evaluation.inside.ece, is_better_high=False),
)


def _detection(outside: str, tier: str, figure: str) -> Column:
    def read(twin: Twin, row: Row) -> float:
        return 100 * FIGURES[figure](twin.evaluation.outside[outside].by_score[row.score_at(tier)])

    return Column(f"{tier}: {outside}, {figure}", 1, read)


def _near_and_far(near: str, far: str) -> Callable[[str], str]:
    return lambda tier: near if tier == NEAR else far


def _mean_and_margin(values: Sequence[float]) -> tuple[float, float]:
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _long_form(found: PaperTable) -> list[str]:
    """Every score of every method against every set, on logits."""
    titles = ["method", "score", "set", *FIGURES]
    lines = ["## Every score", "", "On logits, at T = 1, in %.", ""]
    lines += ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    for title, twins in by_title(found.comparison).items():
        for name in found.tiers.by_set:
            for score in twins[0].evaluation.outside[name].by_score:
                if not score.endswith(CALIBRATED) and not score.startswith(WITHOUT):
                    figures = [twin.evaluation.outside[name].by_score[score] for twin in twins]
                    cells = [spread([100 * read(one) for one in figures], 1) for read in FIGURES.values()]
                    lines.append(f"| {title} | {score_title(score)} | {name} | " + " | ".join(cells) + " |")
    return lines


def _head(found: PaperTable) -> list[str]:
    comparison, config = found.comparison, found.comparison.config
    has_ensemble = any("×" in twin.variant for twin in comparison.twins)
    return [
        f"# {config.name}: the paper's {'table' if found.table == 'paper' else 'ablation'}",
        "",
        f"{config.backbone} on {config.data}, {config.epochs} epochs ({config.schedule}{describe_sizes(config)}, batch "
        f"{config.batch_size}, learning rate {config.learning_rate}, weight decay {config.weight_decay}), seeds "
        f"{', '.join(map(str, comparison.seeds))}, commit {comparison.commit}. What differs from the paper: it has "
        "DenseNet-BC-100, ResNet-34 and WRN-28-10, 300 epochs and five runs; it quotes Scaled Cosine, GODIN, Deep "
        "Ensemble, DUQ and SNGP from their own papers, where all are trained alike here; it chose checkpoints and "
        "temperatures on test images, where they are held out here.",
        "",
        "Mean over the seeds ± standard deviation. Bold: the best of a column, and all that perform the same, those "
        "whose mean differs from it by less than the sum of both deviations. Inside (in-distribution) is positive, but "
        "outside (out-of-distribution, OOD) for AUPR out. Efficiency: images per second of the exported graph over "
        "those of the same backbone with a linear head, both timed in one interleaved run; GODIN with preprocessing, "
        "which is no graph, in torch. † is with the fractional regulariser." + (SHARED_MEMBERS if has_ensemble else ""),
        "",
    ]


SHARED_MEMBERS = (
    " An ensemble's members are the single networks of its seed and the seeds after it, so ensembles of neighbouring "
    "seeds share members, and their deviation is too small."
)
