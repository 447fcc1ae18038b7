"""The paper's tables as rows and columns: their scores, their figures and the rule for what performs the same."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from portcullis_training.comparing.compare import Comparison, Twin, parse_variant
from portcullis_training.comparing.report import FIGURES, by_title, spread
from portcullis_training.config import RunConfig
from portcullis_training.exporting.report import score_title
from portcullis_training.fitting.ensemble import method_of

Table = Literal["paper", "ablation"]
VARIANTS: dict[str, tuple[str, ...]] = {
    "paper": (
        "softmax", "softmax+fractional", "isomax", "isomaxplus", "isomaxplus+cutmix", "scaled_cosine", "godin",
        "godin_dropout", "godin_preprocessing", "duq", "sngp", "dismax", "dismax+fractional", "softmax×3",
    ),
    "ablation": (
        "softmax", "softmax+fractional", "isomaxplus", "isomaxplus+cutmix", "dismax", "dismax+fractional",
    ),
}  # fmt: skip
"""Of each table where none are asked for; the ensemble last, when its members are there."""
NEAR, FAR, VERY_FAR = "near", "far", "very far"
TIER_FIGURES = {NEAR: "AUPR out", FAR: "AUROC", VERY_FAR: "AUPR out"}
"""What the paper prints of each tier."""
TNR = "TNR@TPR95"
FIRST_TITLES = ("method", "score near / far")
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
    known = {number: mean_and_margin(row) for number, row in enumerate(values) if row}
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


def main_columns(tiers: Tiers) -> list[Column]:
    """Those of the paper's first tables."""
    return [*INSIDE_COLUMNS, *(detection(name, tier, TIER_FIGURES[tier]) for name, tier in tiers.by_set.items())]


def tnr_columns(tiers: Tiers) -> list[Column]:
    """Those of the paper's ablation."""
    return [detection(name, tier, TNR) for name, tier in tiers.by_set.items()]


def detection(outside: str, tier: str, figure: str) -> Column:
    """A figure of one outside set, by the score that a row has for its tier."""

    def read(twin: Twin, row: Row) -> float:
        return 100 * FIGURES[figure](twin.evaluation.outside[outside].by_score[row.score_at(tier)])

    return Column(f"{tier}: {outside}, {figure}", 1, read)


def _near_and_far(near: str, far: str) -> Callable[[str], str]:
    return lambda tier: near if tier == NEAR else far


def mean_and_margin(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and deviation over the seeds; of one seed none is known, and none is counted."""
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
