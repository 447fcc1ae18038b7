"""results.md and its plots: what a comparison of twins found, as tables with mean and spread over the seeds."""

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

from portcullis.bundle.manifest import FITTED
from portcullis_training.comparing.compare import Comparison, Twin
from portcullis_training.comparing.papers_figures import is_cifar10
from portcullis_training.comparing.twin_plots import plots_of
from portcullis_training.config import RunConfig
from portcullis_training.exporting.report import score_title
from portcullis_training.measuring.evaluation import DetectionFigures, Evaluation
from portcullis_training.measuring.predictions import CALIBRATED, WITHOUT
from portcullis_training.runs import atomic
from portcullis_training.runs.directory import Run

PAGE_FILE = "results.md"
PAPER = """\
## The paper's figures

CIFAR-10 as inside set, DenseNet-BC-100 (its smallest network), 300 epochs; from Macêdo et al. 2022, in % but for ECE.

| method | accuracy | ECE | CIFAR-100 AUPR out | TinyImageNet AUROC | LSUN AUROC | SVHN AUPR out |
| --- | --- | --- | --- | --- | --- | --- |
| SoftMax | 95.2 | 0.0043 | 86.2 | 92.9 | 94.7 | 93.7 |
| IsoMax+ | 95.1 | 0.0043 | 90.4 | 97.6 | 98.3 | 99.7 |
| DisMax | 95.1 | 0.0045 | 90.0 | 98.0 | 98.4 | 99.9 |

What differs, beside backbone and budget: its TinyImageNet and LSUN images were resized without antialiasing, which
leaves artefacts that make them easy; its checkpoint and temperature were chosen on test images, ours on held-out ones.
"""
POSTHOC = ("energy", "posthoc_max_logit", "knn")
BESIDE_FITTED = ("mmles", "energy", "max_probability", "features", "middle", "neighbours")
ADDITIONS = (
    " The fitted score has the same additions for all: to the method's own score (Energy of SoftMax, MMLES of DisMax) "
    "come norm × gap, Mahalanobis of features and of a middle block, and neighbours, weighed by the same rule."
)
FIGURES: dict[str, Callable[[DetectionFigures], float]] = {
    "AUROC": lambda figures: figures.auroc_inside_positive,
    "AUPR out": lambda figures: figures.aupr_outside_positive,
    "AUPR in": lambda figures: figures.aupr_inside_positive,
    "TNR@TPR95": lambda figures: figures.tnr_at_tpr95_inside_positive,
}


def write_report(comparison: Comparison, runs: Mapping[str, Run], output: Path) -> None:
    """The page, and the plots of one run of each method."""
    files = plots_of(runs)
    (output / "plots").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (output / name).write_bytes(content)
    lines = [*tables(comparison), *_shown(files)]
    atomic.write_text(output / PAGE_FILE, "\n".join(lines) + "\n")


def tables(comparison: Comparison) -> list[str]:
    """The page without its plots, line by line: nothing but the comparison decides what it says."""
    sections = (_head, _classification, _overview, _detection, _temperatures)
    lines = [line for section in sections for line in section(comparison)]
    return [*lines, *PAPER.splitlines(), ""] if is_cifar10(comparison.config.data) else lines


def _head(comparison: Comparison) -> list[str]:
    config = comparison.config
    return [
        f"# {config.name}: twins compared",
        "",
        f"Same backbone ({config.backbone}), data ({config.data}), schedule ({config.schedule}, {config.epochs} "
        f"epochs{describe_sizes(config)}, batch {config.batch_size}, learning rate {config.learning_rate}, "
        f"weight decay {config.weight_decay}) "
        f"and seeds ({', '.join(map(str, comparison.seeds))}) for all. Mean over {len(comparison.seeds)} "
        f"seed{'s' if len(comparison.seeds) > 1 else ''}, ± standard deviation. † is with the fractional regulariser. "
        f"Commit {comparison.commit}.",
        "",
        "Inside is in-distribution, the test images; outside is out-of-distribution (OOD), images of other sets.",
        "",
    ]


def describe_sizes(config: RunConfig) -> str:
    """The smaller images of progressive resizing, in words."""
    steps = config.progressive_resizing or ()
    return "".join(f", up to {share:.0%} of them on {pixels}×{pixels} pixels" for share, pixels in steps)


def _classification(comparison: Comparison) -> list[str]:
    columns: dict[str, Callable[[Twin], float]] = {
        "accuracy %": lambda twin: 100 * twin.evaluation.inside.accuracy,
        "ECE before": lambda twin: twin.evaluation.inside.ece_at_temperature_one or 0.0,
        "ECE after": lambda twin: twin.evaluation.inside.ece,
        "temperature": lambda twin: twin.temperature,
        "NLL": lambda twin: twin.evaluation.inside.nll,
        "Brier": lambda twin: twin.evaluation.inside.brier,
        "rejected at accept95 %": lambda twin: 100 * twin.evaluation.inside.rejected.get("accept95", float("nan")),
        "cost, one image": lambda twin: _cost(twin, "batch of 1"),
        "cost, batch of 32": lambda twin: _cost(twin, "batch of 32"),
        "fit minutes": lambda twin: twin.fit_seconds / 60,
    }
    digits = {"accuracy %": 1, "rejected at accept95 %": 1, "fit minutes": 1}
    rows = [
        f"| {title} | " + " | ".join(spread([value(twin) for twin in twins], digits.get(name, 4))
                                      for name, value in columns.items()) + " |"
        for title, twins in by_title(comparison).items()
    ]  # fmt: skip
    return [
        "## Classification and calibration",
        "",
        "On the test images. Cost is the time per image of the exported graph over that of the same backbone with a "
        "linear head, in one interleaved run on one CPU thread.",
        "",
        "| method | " + " | ".join(columns) + " |",
        "| --- |" + " --- |" * len(columns),
        *rows,
        "",
    ]


def _cost(twin: Twin, batch: str) -> float:
    return twin.evaluation.inference_cost_relative_to_softmax.get(batch, float("nan"))  # nan: it would take too long


def _overview(comparison: Comparison) -> list[str]:
    """AUROC of the score that each method ships, and of the post-hoc ones."""
    names = list(comparison.twins[0].evaluation.outside)
    lines = [
        "## AUROC at a glance",
        "",
        "In %, inside positive: the score that each method ships, and three post-hoc scores on the SoftMax twin."
        + (ADDITIONS if any(twin.evaluation.shipped_score == FITTED for twin in comparison.twins) else ""),
        "",
        f"| method | score | {' | '.join(names)} |",
        "| --- |" + " --- |" * (1 + len(names)),
    ]
    for title, twins in by_title(comparison).items():
        for score in _overview_scores(twins[0].evaluation, names[0]):
            found = [[100 * twin.evaluation.outside[name].by_score[score].auroc_inside_positive for twin in twins]
                     for name in names]  # fmt: skip
            lines.append(f"| {title} | {score_title(score)} | {' | '.join(spread(values, 1) for values in found)} |")
    return [*lines, ""]


def _overview_scores(evaluation: Evaluation, outside: str) -> list[str]:
    """What ships; where that is fitted, the scores that it is measured by; post-hoc scores where there are any."""
    known = evaluation.outside[outside].by_score
    beside = BESIDE_FITTED if evaluation.shipped_score == FITTED else ()
    posthoc = POSTHOC if "knn" in known else ()
    return list(dict.fromkeys([evaluation.shipped_score, *(name for name in (*beside, *posthoc) if name in known)]))


def _detection(comparison: Comparison) -> list[str]:
    lines = [
        "## Telling outside from inside",
        "",
        "In %. Inside is positive, but outside for AUPR out. Scores at T = 1; in bold the one that the method ships. "
        "Energy, MaxLogit and KNN are post-hoc scores on the SoftMax twin.",
        "",
    ]
    for outside in comparison.twins[0].evaluation.outside:
        lines += [f"### {outside}", "", f"| method | score | {' | '.join(FIGURES)} |", "| --- |" + " --- |" * 5]
        lines += [row for title, twins in by_title(comparison).items() for row in _rows(title, twins, outside)]
        lines.append("")
    return lines


def _rows(title: str, twins: list[Twin], outside: str) -> list[str]:
    rows = []
    for score in twins[0].evaluation.outside[outside].by_score:
        if score.endswith(CALIBRATED) or score.startswith(WITHOUT):
            continue
        is_shipped = score == twins[0].evaluation.shipped_score
        name = f"**{score_title(score)}**" if is_shipped else score_title(score)
        found = [twin.evaluation.outside[outside].by_score[score] for twin in twins]
        values = " | ".join(spread([100 * read(figures) for figures in found], 1) for read in FIGURES.values())
        rows.append(f"| {title} | {name} | {values} |")
    return rows


def _temperatures(comparison: Comparison) -> list[str]:
    """AUROC with and without the temperature inside the score: what `score_temperature` is chosen by."""
    scores = ("mmles", "max_probability", "negative_entropy")
    lines = [
        "## The temperature inside the score",
        "",
        "AUROC in %, inside positive: on logits / on logits divided by the fitted temperature.",
        "",
        "| method | outside set | " + " | ".join(score_title(score) for score in scores) + " |",
        "| --- |" + " --- |" * (1 + len(scores)),
    ]
    for title, twins in by_title(comparison).items():
        for outside in twins[0].evaluation.outside:
            cells = [
                f"{_auroc(twins, outside, score)} / {_auroc(twins, outside, score + CALIBRATED)}" for score in scores
            ]
            lines.append(f"| {title} | {outside} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _auroc(twins: list[Twin], outside: str, score: str) -> str:
    values = [100 * twin.evaluation.outside[outside].by_score[score].auroc_inside_positive for twin in twins]
    return f"{statistics.mean(values):.1f}"


def _shown(files: Mapping[str, bytes]) -> list[str]:
    lines = ["## Plots", "", "Of the twins of the first seed.", ""]
    for name in files:
        lines += [f"![{Path(name).stem}]({name})", ""]
    return lines[:-1]


def by_title(comparison: Comparison) -> dict[str, list[Twin]]:
    """The twins of each method, one a seed."""
    grouped: dict[str, list[Twin]] = {}
    for twin in comparison.twins:
        grouped.setdefault(twin.title, []).append(twin)
    return grouped


def spread(values: list[float], digits: int) -> str:
    """Mean, and standard deviation where there is more than one value."""
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"
