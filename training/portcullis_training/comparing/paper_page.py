"""The page of a table as the paper has it: what differs, the tables, who is best, and all other scores."""

from collections.abc import Sequence

from portcullis_training.comparing.compare import parse_variant
from portcullis_training.comparing.paper_command import command_of
from portcullis_training.comparing.paper_plots import PLOTS
from portcullis_training.comparing.paper_table import (
    FIRST_TITLES,
    TIER_FIGURES,
    TNR,
    VARIANTS,
    Column,
    PaperTable,
    Row,
    ablation_rows,
    bold_rows,
    main_columns,
    mean_and_margin,
    paper_rows,
    render,
    tnr_columns,
)
from portcullis_training.comparing.papers_figures import CIFAR10, PAPERS_IMAGES, RESIZED, is_cifar10
from portcullis_training.comparing.report import FIGURES, by_title, describe_sizes, spread
from portcullis_training.exporting.report import score_title
from portcullis_training.measuring.predictions import CALIBRATED, WITHOUT

OURS = ("dismax", "dismax+fractional")
BEHIND = "behind by"
RULE = (
    "Mean over the seeds ± standard deviation, in % but for ECE. **Bold**: the best of a column, and all that perform "
    "the same by the paper's rule, those whose mean differs from it by less than the sum of both deviations; of one "
    "seed no deviation is known, and none is counted. Inside (in-distribution) is positive, but outside "
    "(out-of-distribution, OOD) for AUPR out. † is with the fractional regulariser."
)
EFFICIENCY = (
    " Efficiency: images per second of the exported graph over those of the same backbone with a linear head, both "
    "timed in one interleaved run; GODIN with preprocessing, which is no graph, in torch."
)
QUOTED = (
    "- It quotes Scaled Cosine, GODIN, Deep Ensemble, DUQ and SNGP from their own papers; here all are trained alike, "
    "by one schedule that was tuned for none of them."
)
SHARED_MEMBERS = (
    " An ensemble's members are the single networks of its seed and the seeds after it, so ensembles of neighbouring "
    "seeds share members, and their deviation is too small."
)


def page(found: PaperTable) -> list[str]:
    """The whole page: nothing but the figures decides what it says."""
    return [*_head(found), *tables(found), *_plots(found), *_the_papers(found), *_long_form(found)]


def tables(found: PaperTable) -> list[str]:
    """The tables as the paper has them, each under its heading, and where DisMax stands in both of the first."""
    tnr = tnr_columns(found.tiers)
    if found.table == "ablation":
        return [f"## Ablation: {TNR}", "", *render(("method", "score"), ablation_rows(found), tnr), ""]
    rows, columns = paper_rows(found), main_columns(found.tiers)
    lines = ["## The table", "", *render(FIRST_TITLES, rows, columns), ""]
    lines += [f"## {TNR}", "", *render(FIRST_TITLES, rows, tnr), ""]
    return [*lines, *standing(rows, [*columns, *tnr])]


def rows_of(found: PaperTable, variants: Sequence[str]) -> list[str]:
    """The rows of some variants out of the table, below its titles and as bold as they are there."""
    rows = paper_rows(found)
    titles, line, *lines = render(FIRST_TITLES, rows, main_columns(found.tiers))
    chosen = [text for row, text in zip(rows, lines, strict=True) if row.twins[0].variant in variants]
    return [titles, line, *chosen] if chosen else []


def standing(rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """Figure by figure who is best, and how far DisMax is behind where it is."""
    ours = [number for number, row in enumerate(rows) if row.twins[0].variant in OURS]
    if not ours or len(rows) == len(ours):
        return []
    known = [(column, [column.values(row) for row in rows]) for column in columns]
    verdicts = [_verdicts(column, values, ours) for column, values in known if all(values)]
    titles = [rows[number].labels[0] for number in ours]
    counted = ", ".join(
        f"{title} in {sum(not said[place].startswith(BEHIND) for _, _, said in verdicts)}"
        for place, title in enumerate(titles)
    )
    lines = [f"| figure | best | {' | '.join(titles)} |", "|" + " --- |" * (2 + len(titles))]
    for column, best, said in verdicts:
        mean = mean_and_margin(column.values(rows[best]))[0]
        lines.append(f"| {column.title} | {rows[best].labels[0]}, {mean:.{column.digits}f} | {' | '.join(said)} |")
    sentence = f"Of {len(verdicts)} figures the best, or the same as the best by the rule above: {counted}."
    return ["## Where DisMax stands", "", sentence, "", *lines, ""]


def _verdicts(column: Column, values: Sequence[Sequence[float]], ours: Sequence[int]) -> tuple[Column, int, list[str]]:
    """The best row of a column, and of each of ours what it is beside that."""
    means = [mean_and_margin(one)[0] for one in values]
    best = means.index((max if column.is_better_high else min)(means))
    is_bold = bold_rows(values, is_better_high=column.is_better_high)
    said = [
        ("best" if number == best else "the same")
        if is_bold[number]
        else f"{BEHIND} {abs(means[number] - means[best]):.{column.digits}f}"
        for number in ours
    ]
    return column, best, said


def _head(found: PaperTable) -> list[str]:
    comparison, config = found.comparison, found.comparison.config
    averaged = f", weights averaged by {config.weight_averaging}" if config.weight_averaging else ""
    ensemble = SHARED_MEMBERS if any("×" in twin.variant for twin in comparison.twins) else ""
    return [
        f"# {config.name}: the paper's {'table' if found.table == 'paper' else 'ablation'}",
        "",
        f"{config.backbone} on {config.data}, {config.epochs} epochs ({config.schedule}{describe_sizes(config)}, batch "
        f"{config.batch_size}, learning rate {config.learning_rate}, weight decay {config.weight_decay}, precision "
        f"{config.precision}{averaged}), seeds {', '.join(map(str, comparison.seeds))}, commit {comparison.commit}. "
        "The paper is Macêdo, Zanchettin, Ludermir 2022 (arXiv 2205.05874).",
        "",
        *_incomplete(found),
        "What differs from the paper:",
        "",
        f"- It has DenseNet-BC-100, ResNet-34 and WRN-28-10, 300 epochs (90 on TinyImageNet) and five runs; here "
        f"{config.backbone}, {config.epochs} epochs and {len(comparison.seeds)}.",
        _other_images(found),
        *([QUOTED] if found.table == "paper" else []),
        "- It chose checkpoints and temperatures on test images; here the last weights are taken, and temperatures "
        "fitted on images held out for that.",
        *([f"- {RESIZED}"] if is_cifar10(config.data) else []),
        "",
        "```sh",
        *command_of(found),
        "```",
        "",
        RULE + (EFFICIENCY if found.table == "paper" else "") + ensemble,
        "",
    ]


def _other_images(found: PaperTable) -> str:
    """Which images the paper has, beside those of this table."""
    ours = "; ".join(
        f"{tier}: {', '.join(name for name, of in found.tiers.by_set.items() if of == tier) or 'none'}"
        for tier in TIER_FIGURES
    )
    return f"- {PAPERS_IMAGES[found.table]}; here {found.comparison.config.data} ({ours})."


def _incomplete(found: PaperTable) -> list[str]:
    """What a reader must know of a table that is still being trained."""
    comparison = found.comparison
    there = {(twin.variant, twin.seed) for twin in comparison.twins}
    variants = list(dict.fromkeys([*(twin.variant for twin in comparison.twins), *VARIANTS[found.table]]))
    missing: dict[str, list[str]] = {}
    for variant in variants:
        seeds = [str(seed) for seed in comparison.seeds if (variant, seed) not in there]
        if seeds:
            missing.setdefault(", ".join(seeds), []).append(parse_variant(variant).title)
    said = "; ".join(f"without seed {seeds}: {' · '.join(titles)}" for seeds, titles in missing.items())
    return [f"**Not the whole table**, {said}.", ""] if said else []


def _plots(found: PaperTable) -> list[str]:
    lines = ["## Plots", ""]
    for name, (words, _) in PLOTS[found.table].items():
        lines += [f"![{words}]({name})", ""]
    return lines


def _the_papers(found: PaperTable) -> list[str]:
    return [*CIFAR10.splitlines(), ""] if found.table == "paper" and is_cifar10(found.comparison.config.data) else []


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
