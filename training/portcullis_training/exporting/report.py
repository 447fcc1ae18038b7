"""report.md and its plots: the card of a bundle that a person reads."""

from portcullis.bundle.gate import DEFAULT_OPERATING_POINT
from portcullis.bundle.manifest import FITTED, Manifest
from portcullis_training.exporting import plots
from portcullis_training.exporting.promise_sections import promise_sections
from portcullis_training.measuring.evaluation import DetectionFigures, Evaluation
from portcullis_training.measuring.metrics import Indices, risk_coverage
from portcullis_training.measuring.predictions import CALIBRATED, WITHOUT, Predict, Predictions
from portcullis_training.measuring.trained import Trained

REPORT_FILE = "report.md"
RELIABILITY_FILE = "plots/reliability.png"
SCORES_FILE = "plots/scores.png"
MEAN_LOGITS_FILE = "plots/mean_logits.png"
RISK_COVERAGE_FILE = "plots/risk_coverage.png"

TITLES = {
    "mmles": "MMLES", "max_probability": "MPS", "max_logit": "MDS", "negative_entropy": "negative entropy",
    "max_cosine": "largest cosine", "max_h": "largest h",
    "energy": "Energy, post-hoc", "posthoc_max_logit": "MaxLogit, post-hoc", "knn": "KNN, post-hoc",
    FITTED: "fitted score", "norm_gap": "norm × gap", "features": "Mahalanobis, features",
    "middle": "Mahalanobis, middle block", "neighbours": "neighbours",
}  # fmt: skip


def render_report(manifest: Manifest, evaluation: Evaluation, trained: Trained, predict: Predict) -> dict[str, bytes]:
    """Files of the report by name: Markdown and PNG."""
    text = "\n".join(
        [
            *_head(manifest, trained),
            *_inside_section(evaluation),
            *score_section(manifest, evaluation),
            *_gate_section(manifest, evaluation),
            *promise_sections(manifest, predict("test", trained.splits.test)),
            *_outside_section(evaluation),
            *_origin_section(manifest),
        ]
    )
    return {REPORT_FILE: (text + "\n").encode(), **_plots(manifest, trained, predict)}


def score_title(name: str) -> str:
    """MMLES, or MMLES at L / T, for people."""
    if name.startswith(WITHOUT):
        return f"{TITLES[FITTED]} without {score_title(name.removeprefix(WITHOUT))}"
    plain = name.removesuffix(CALIBRATED)
    return TITLES.get(plain, plain) + (" on logits / temperature" if name.endswith(CALIBRATED) else "")


def _plots(manifest: Manifest, trained: Trained, predict: Predict) -> dict[str, bytes]:
    inside = predict("test", trained.splits.test)
    outside = {name: predict(f"outside {name}", images) for name, images in trained.outside_sets().items()}
    labels = trained.splits.test.labels
    title = f"{manifest.name}, test images"
    thresholds = {point.name: point.threshold for point in manifest.operating_points}
    return {
        RELIABILITY_FILE: plots.reliability_diagram(inside.probabilities, labels, title),
        SCORES_FILE: plots.score_histograms(
            inside.score, {name: answers.score for name, answers in outside.items()},
            f"{score_title(inside.shipped_score)}, higher is more familiar",
            f"{manifest.name}, in- and out-of-distribution", thresholds.get(DEFAULT_OPERATING_POINT),
        ),
        MEAN_LOGITS_FILE: plots.score_histograms(
            inside.mean_logits, {name: answers.mean_logits for name, answers in outside.items()},
            "mean logit", f"{manifest.name}, in- and out-of-distribution",
        ),
        RISK_COVERAGE_FILE: risk_coverage_plot(inside, labels, title),
    }  # fmt: skip


def risk_coverage_plot(test: Predictions, labels: Indices, title: str) -> bytes:
    """What is gained by answering fewer images: the surest, or the most familiar."""
    is_right = test.probabilities.argmax(axis=1) == labels
    curves = {
        "ordered by probability": risk_coverage(test.probabilities.max(axis=1), is_right),
        f"ordered by {score_title(test.shipped_score)}": risk_coverage(test.score, is_right),
    }
    return plots.risk_coverage_curves(curves, title)


def _head(manifest: Manifest, trained: Trained) -> list[str]:
    method = manifest.method
    dagger = ", with the fractional regulariser" if method.fractional_regulariser else ""
    return [
        f"# {manifest.name}, version {manifest.version}",
        "",
        f"{trained.method.title} on {method.backbone}{dagger}. Tells apart {len(manifest.labels)} classes in images of "
        f"{manifest.image.width}×{manifest.image.height} pixels: {_shortened(manifest.labels)}.",
        "",
    ]


def _inside_section(evaluation: Evaluation) -> list[str]:
    inside = evaluation.inside
    before = "" if inside.ece_at_temperature_one is None else f" ({inside.ece_at_temperature_one:.4f} at T = 1)"
    return [
        "## In-distribution",
        "",
        f"On {inside.num_images} test images that neither training nor calibration saw.",
        "",
        "| accuracy | ECE, 15 bins | NLL | Brier | area under risk–coverage, by probability / by score |",
        "| --- | --- | --- | --- | --- |",
        f"| {inside.accuracy:.2%} | {inside.ece:.4f}{before} | {inside.nll:.4f} | {inside.brier:.4f} | "
        f"{inside.area_under_risk_coverage_by_probability:.4f} / {inside.area_under_risk_coverage_by_score:.4f} |",
        "",
        f"![Reliability diagram]({RELIABILITY_FILE})",
        "",
        f"![Risk and coverage]({RISK_COVERAGE_FILE})",
        "",
    ]


def score_section(manifest: Manifest, evaluation: Evaluation) -> list[str]:
    """What the score is made of, and what each part is worth: alone, and to the others."""
    info = manifest.score
    if info is None or info.name != FITTED:
        return []
    weights = dict(zip(info.parts, info.weights, strict=True))
    first = next(iter(evaluation.outside.values()), None)
    without = [name for name in ({} if first is None else first.by_score) if name.startswith(WITHOUT)]
    parts = [name.removeprefix(WITHOUT) for name in without]
    lines = [
        "## Score",
        "",
        f"The fitted score is a weighted sum of parts, each standardised. Fitted on {info.fitted_on}. A part without "
        "weight is not in the graph. AUROC in % against each out-of-distribution set, in-distribution positive.",
        "",
        "| score | weight |" + "".join(f" {name} |" for name in evaluation.outside),
        "| --- | --- |" + " --- |" * len(evaluation.outside),
    ]
    for name in (FITTED, *parts, *without):
        title = f"**{score_title(name)}**" if name == FITTED else score_title(name)
        weight = f"{weights.get(name, 0):.2f}" if name in parts else ""
        aurocs = [figures.by_score[name].auroc_inside_positive for figures in evaluation.outside.values()]
        lines.append(f"| {title} | {weight} | " + " | ".join(f"{100 * auroc:.1f}" for auroc in aurocs) + " |")
    return [*lines, ""]


def _gate_section(manifest: Manifest, evaluation: Evaluation) -> list[str]:
    num_images = manifest.calibration.num_images
    rows = [
        f"| {point.name} | {point.threshold:.4f} | ≤ {point.alpha:.1%} | ≤ {point.rejected_share_bound:.2%} | "
        f"{evaluation.inside.rejected[point.name]:.2%} |"
        for point in manifest.operating_points
    ]
    return [
        "## Gate",
        "",
        f"The score is {score_title(evaluation.shipped_score)}; {num_images} calibration images set the thresholds. "
        "The promises hold for images like these, familiar or in-distribution ones; nothing can promise how many "
        "out-of-distribution images are caught.",
        "",
        "| operating point | threshold | familiar images rejected, mean | with 95 % confidence | measured on test |",
        "| --- | --- | --- | --- | --- |",
        *(rows or ["| none | too few calibration images | | | |"]),
        "",
    ]


def _outside_section(evaluation: Evaluation) -> list[str]:
    lines = [
        "## Out-of-distribution (OOD)",
        "",
        "Test images (inside) against sets of other images (outside), in %. Inside is positive, but outside for AUPR "
        "out. The bold score ships.",
        "",
    ]
    for name, figures in evaluation.outside.items():
        caught = ", ".join(f"{point} {share:.1%}" for point, share in figures.caught.items())
        lines += [f"### {name}", "", f"{figures.num_images} images. Caught at {caught or 'no operating point'}.", ""]
        lines += detection_table(figures.by_score, evaluation.shipped_score)
    shown = [
        f"![Scores in- and out-of-distribution]({SCORES_FILE})",
        "",
        f"![Mean logits in- and out-of-distribution]({MEAN_LOGITS_FILE})",
    ]
    return [*lines, *shown, ""]


def detection_table(by_score: dict[str, DetectionFigures], shipped: str) -> list[str]:
    """Markdown rows of every score, the shipped one in bold."""
    lines = ["| score | AUROC | AUPR in | AUPR out | TNR@TPR95 |", "| --- | --- | --- | --- | --- |"]
    for name, figures in by_score.items():
        if name.startswith(WITHOUT):
            continue
        title = f"**{score_title(name)}**" if name == shipped else score_title(name)
        values = (
            figures.auroc_inside_positive, figures.aupr_inside_positive, figures.aupr_outside_positive,
            figures.tnr_at_tpr95_inside_positive,
        )  # fmt: skip
        lines.append(f"| {title} | " + " | ".join(f"{100 * value:.1f}" for value in values) + " |")
    return [*lines, ""]


def _origin_section(manifest: Manifest) -> list[str]:
    origin = manifest.provenance
    libraries = ", ".join(f"{name} {version}" for name, version in origin.libraries.items())
    return [
        "## Origin",
        "",
        f"Data {origin.data} (fingerprint {origin.data_fingerprint[:16]}), seed {origin.seed}, commit {origin.commit}, "
        f"{libraries}. Temperature {manifest.temperature:.4g}. The whole recipe is in {origin.recipe}.",
    ]


def _shortened(labels: tuple[str, ...], num_shown: int = 20) -> str:
    more = f" and {len(labels) - num_shown} more" if len(labels) > num_shown else ""
    return ", ".join(labels[:num_shown]) + more
