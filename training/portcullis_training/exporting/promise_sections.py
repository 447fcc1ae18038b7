"""The part of report.md that tells what a bundle promises beside its operating points, and how that came out."""

from portcullis.bundle.gate import DEFAULT_OPERATING_POINT
from portcullis.bundle.manifest import Manifest
from portcullis_training.measuring.predictions import Predictions
from portcullis_training.measuring.promises import turned_away


def promise_sections(manifest: Manifest, test: Predictions) -> list[str]:
    """Markdown: answers that pass are right, and who is turned away class by class."""
    return [*_right_section(manifest), *_class_section(manifest, test)]


def _right_section(manifest: Manifest) -> list[str]:
    rows = [
        f"| {'+'.join(filter(None, (point.gate, point.name)))} | ≥ {point.min_probability:.4f} | ≤ {point.risk:.1%} | "
        f"{point.coverage:.1%} | {_share(point.test_coverage)} | {_share(point.test_error, 2)} |"
        for point in manifest.promises
    ]
    return [
        "## Right answers",
        "",
        "Of familiar images, those that pass are answered wrongly at most so often, each with 95 % confidence over "
        "draws of the calibration images (a fixed sequence of binomial tests). This holds for familiar images only: "
        "it says nothing about strangers that pass.",
        "",
        "| operating point | probability | wrong, bound | coverage, calibration | coverage, test | wrong, test |",
        "| --- | --- | --- | --- | --- | --- |",
        *(rows or ["| none | the calibration images cannot prove one | | | | |"]),
        "",
    ]


def _class_section(manifest: Manifest, test: Predictions) -> list[str]:
    shares = turned_away(manifest, test)
    if not shares:
        return []
    rows = [
        f"| {share.label} | {share.num_images} | {share.overall:.1%} | {_share(share.by_class)} |" for share in shares
    ]
    point = DEFAULT_OPERATING_POINT
    return [
        "## Turned away, class by class",
        "",
        f"Share of the test images answered with a class that {point} rejects, with one threshold for all classes and "
        "with one for each.",
        "",
        f"| answered | test images | {point} | {point}:by-class |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
    ]


def _share(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{share:.{digits}%}"
