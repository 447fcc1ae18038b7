"""Writes the next version of a bundle with another calibration: same graph, new manifest, a card of its own."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from portcullis.bundle import files, gate, right
from portcullis.bundle.files import Bundle, write_bundle
from portcullis.bundle.gate import Gate
from portcullis.bundle.grammar import BY_CLASS
from portcullis.bundle.manifest import Manifest
from portcullis.bundle.promises import Promises
from portcullis.bundle.recalibration import Answers, recalibrate
from portcullis.errors import BundleError, UnknownOperatingPoint

REPORT = "report.md"
FAMILIAR_ONLY = "All of this holds for familiar (in-distribution) images only."


@dataclass(frozen=True)
class Promise:
    """One gate that people ask for, and whether the calibration images can promise it."""

    gate: str
    is_kept: bool
    text: str
    """What is promised, or why it cannot be."""


def check_place(bundle: Bundle) -> None:
    """Refuse a bundle that lies where nobody would find a next version beside it."""
    if bundle.path.is_symlink():  # one bundle that a platform has put there: the place beside it does not last
        raise BundleError(f"the models directory holds {bundle.label} alone, and has no place for a next version")
    place = _place(bundle)
    if (place.parent.name, place.name) != (bundle.manifest.name, str(bundle.manifest.version)):
        raise BundleError(
            f"a next version goes beside the one that it comes from: expected it at <models>/{bundle.label}, "
            f"not at {place.parent.name}/{place.name}"
        )


def next_manifest(bundle: Bundle, answers: Answers) -> Manifest:
    """The manifest of the next version, its gate on these images; refused where they are too few for any promise."""
    check_place(bundle)
    known = files.versions(_models(bundle), bundle.manifest.name)
    return recalibrate(bundle.manifest, answers, max(known, default=bundle.manifest.version) + 1)


def write_next(bundle: Bundle, manifest: Manifest, check: Callable[[Bundle], None]) -> Bundle:
    """Write it beside the bundle that it comes from; `check` sees it before it gets its name."""
    kept = {name: bundle.read(name) for name in bundle.manifest.files}
    if REPORT in kept:
        kept[f"report-of-{bundle.manifest.version}.md"] = kept.pop(REPORT)
    kept[REPORT] = "\n".join([*_report(bundle.manifest, manifest), ""]).encode()
    return write_bundle(_models(bundle), manifest, kept, check)


def promises_of(manifest: Manifest) -> list[Promise]:
    """What the calibration images can promise, and what they cannot."""
    by_class = [f"{name}:{BY_CLASS}" for name in gate.PUBLISHED]
    both = [f"{gate.DEFAULT_OPERATING_POINT}+{name}" for name in right.PUBLISHED]
    promises = Promises(manifest)
    return [_promise(promises, text) for text in (*gate.PUBLISHED, *by_class, *right.PUBLISHED, *both)]


def _promise(promises: Promises, asked_for: str) -> Promise:
    try:
        chosen = promises.gate(asked_for)
    except UnknownOperatingPoint as error:
        why_not = str(error).partition("; published:")[0]
        return Promise(asked_for, False, why_not if why_not.startswith(f"{asked_for} ") else f"{asked_for}: {why_not}")
    if chosen.right is None:
        within = " of each answered class" if chosen.by_class is not None else ""
        text = (
            f"{asked_for}: rejects at most {100 * chosen.rejected_share:.3g} % of familiar images{within} on average, "
            f"{100 * _bound(chosen, asked_for):.3g} % with 95 % confidence"
        )
    else:
        text = (
            f"{asked_for}: of familiar images that pass, at most {100 * chosen.right.risk:.3g} % are answered wrongly "
            f"(95 % confidence); {100 * chosen.right.coverage:.3g} % pass"
        )
    return Promise(asked_for, True, text)


def _bound(chosen: Gate, asked_for: str) -> float:
    """The share that these calibration images do not exceed with 95 % confidence: far above the mean where few."""
    calibrations = [chosen.calibration] if chosen.by_class is None else [one.calibration for one in chosen.by_class]
    name = asked_for.partition(":")[0]
    return max(gate.operating_point(name, calibration).rejected_share_bound for calibration in calibrations)


def _models(bundle: Bundle) -> Path:
    return _place(bundle).parent.parent


def _place(bundle: Bundle) -> Path:
    """As it was named, without `.` and `..`: a link on the way, as from <models>/<name> to another disk, stays one."""
    return Path(os.path.abspath(bundle.path))  # noqa: PTH100 (resolve would follow links)


def _report(before: Manifest, manifest: Manifest) -> list[str]:
    figures, num_images = manifest.figures, manifest.calibration.num_images
    rows = [
        f"| {point.name} | {point.threshold:.4f} | ≤ {point.alpha:.1%} | ≤ {point.rejected_share_bound:.2%} |"
        for point in manifest.operating_points
    ]
    return [
        f"# {manifest.name}, version {manifest.version}",
        "",
        f"The graph of version {before.version}, its gate calibrated anew on {num_images} familiar images. "
        f"What is known of the graph itself is in report-of-{before.version}.md.",
        "",
        "| operating point | threshold | familiar images rejected, mean | with 95 % confidence |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        *(f"- {promise.text}" for promise in promises_of(manifest)),
        "",
        FAMILIAR_ONLY,
        "",
        f"Accuracy {figures.accuracy:.2%}, ECE {figures.ece:.4f} on {figures.num_images} images. "
        f"Data: {manifest.provenance.data}.",
    ]
