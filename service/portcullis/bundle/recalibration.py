"""The next version of a bundle with a gate calibrated on other familiar images. The graph is not touched.

Pure arithmetic from what the engine answered to a manifest; `commands/calibrate.py` reads images and writes files. A
bundle of format 1 becomes one of format 2 whose score has one part: itself.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle import gate
from portcullis.bundle.manifest import (
    MAX_CALIBRATION_ROWS,
    CalibrationRows,
    Figures,
    Manifest,
    OutsideFigures,
    Provenance,
    RightPoint,
    ScoreInfo,
    SelfTest,
)
from portcullis.bundle.outputs import Outputs
from portcullis.bundle.promises import Promises
from portcullis.errors import BundleError, InvalidParameter

DEFAULT_GRID = (0.9999, 0.9998, 0.9995, 0.999, 0.998, *(round(0.995 - 0.005 * step, 3) for step in range(140)))
"""Candidates for the least probability where a bundle has none of its own: fixed before any image is looked at."""
NUM_BINS = 15
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Answers:
    """What the engine says of the familiar images, row by row."""

    outputs: Outputs
    labels: NDArray[np.int64] | None
    """True classes; none: the images came without."""
    digest: str
    """sha256 of all the images' bytes."""
    source: str
    """Where the images come from, for people."""

    @property
    def num_images(self) -> int:
        return len(self.outputs.scores)


def recalibrate(manifest: Manifest, answers: Answers, version: int) -> Manifest:
    """The manifest of the next version; refused where the images cannot even promise the default operating point."""
    num_images, needed = answers.num_images, least_images()
    if num_images < needed:
        raise InvalidParameter(
            f"{num_images} familiar images cannot promise {gate.DEFAULT_OPERATING_POINT}, which takes {needed}; "
            f"they could promise to reject at most {1 / (num_images + 1):.1%} of familiar images, and no less. "
            f"accept99 takes 99, and by class as many of each answered class"
        )
    outputs = answers.outputs
    if not (np.isfinite(outputs.scores).all() and np.isfinite(outputs.parts).all()):
        raise BundleError("the graph gave NaN or infinity for a familiar image: nothing can be promised with it")
    order = np.argsort(outputs.scores, kind="stable")
    calibration = gate.summarise(outputs.scores.tolist(), MAX_CALIBRATION_ROWS)
    answered = np.bincount(outputs.probabilities.argmax(axis=1), minlength=len(manifest.labels))
    changes = {
        "format_version": 2,
        "version": version,
        "created": datetime.now(UTC),
        "score": manifest.score or _own_score(manifest, outputs),
        "calibration": calibration,
        "calibration_rows": _rows(manifest, answers, order),
        "operating_points": gate.operating_points(calibration),
        "promises": (),
        "class_mix": tuple((answered / num_images).tolist()),
        "figures": _figures(manifest, answers),
        "provenance": _provenance(manifest, answers),
        "self_test": _self_test(manifest),
        "files": {},
    }
    made = Manifest.model_validate({**dict(manifest), **changes})
    return made.model_copy(update={"promises": right_points(made)})


def least_images() -> int:
    """How many images the default operating point takes."""
    return round(1 / float(gate.alpha_of(gate.DEFAULT_OPERATING_POINT))) - 1


def right_points(manifest: Manifest) -> tuple[RightPoint, ...]:
    """What can be proven about answers that pass, alone and behind the default operating point."""
    promises = Promises(manifest)
    return (*promises.right_points(), *promises.right_points(gate.DEFAULT_OPERATING_POINT))


def _own_score(manifest: Manifest, outputs: Outputs) -> ScoreInfo:
    return ScoreInfo(
        name=manifest.method.score,
        parts=(manifest.method.score,),
        means=(0.0,),
        deviations=(max(float(outputs.scores.std()), _SMALLEST),),
        weights=(1.0,),
        fitted_on="nothing: the graph's score is the method's own",
    )


def _self_test(manifest: Manifest) -> SelfTest:
    before = manifest.self_test
    return before if before.parts else before.model_copy(update={"parts": tuple((score,) for score in before.scores)})


def _rows(manifest: Manifest, answers: Answers, order: NDArray[np.intp]) -> CalibrationRows | None:
    if answers.num_images > MAX_CALIBRATION_ROWS:
        return None
    probabilities, parts = answers.outputs.probabilities[order], answers.outputs.parts[order]
    answered = probabilities.argmax(axis=1)
    truth = None if answers.labels is None else answers.labels[order]
    before = manifest.calibration_rows
    return CalibrationRows(
        class_indices=tuple(answered.tolist()),
        probabilities=tuple(probabilities.max(axis=1).tolist()),
        is_right=() if truth is None else tuple((answered == truth).tolist()),
        true_probabilities=() if truth is None else tuple(probabilities[np.arange(len(truth)), truth].tolist()),
        parts={name: tuple(column.tolist()) for name, column in zip(manifest.part_names, parts.T, strict=True)},
        probability_grid=before.probability_grid if before and before.probability_grid else DEFAULT_GRID,
    )


def _figures(manifest: Manifest, answers: Answers) -> Figures:
    """Accuracy and calibration on these images where they have labels, else as before; shares rejected of strangers."""
    points = gate.operating_points(gate.summarise(answers.outputs.scores.tolist(), MAX_CALIBRATION_ROWS))
    thresholds = {point.name: point.threshold for point in points}
    outside = {
        name: _outside(figures, answers.outputs.scores, thresholds)
        for name, figures in manifest.figures.outside.items()
        if figures.score_quantiles
    }
    changes: dict[str, object] = {"rejected": {}, "outside": outside}
    if answers.labels is not None:
        changes |= _inside(answers.outputs.probabilities.astype(np.float64), answers.labels)
    return manifest.figures.model_copy(update=changes)


def _inside(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, object]:
    rows = np.arange(len(labels))
    best, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    is_right = (best == labels).astype(np.float64)
    bins = np.minimum((np.ceil(confidence * NUM_BINS) - 1).astype(np.int64), NUM_BINS - 1)  # closed at the upper end
    gaps = np.bincount(bins, weights=is_right - confidence, minlength=NUM_BINS)
    truth = np.zeros_like(probabilities)
    truth[rows, labels] = 1
    return {
        "num_images": len(labels),
        "accuracy": float(is_right.mean()),
        "ece": float(np.abs(gaps).sum() / len(labels)),
        "nll": float(-np.log(np.maximum(probabilities[rows, labels], _SMALLEST)).mean()),
        "brier": float(((probabilities - truth) ** 2).sum(axis=1).mean()),
    }


def _outside(figures: OutsideFigures, inside: NDArray[np.float32], thresholds: dict[str, float]) -> OutsideFigures:
    """From the quantiles that the bundle kept of the set's scores: within about one step of them."""
    outside = np.asarray(figures.score_quantiles)
    ordered = np.sort(inside.astype(np.float64))
    below = (np.searchsorted(ordered, outside, side="left") + np.searchsorted(ordered, outside, side="right")) / 2
    kept = ordered[len(ordered) - int(np.ceil(0.95 * len(ordered) - 1e-9))]
    weights = np.concatenate([np.ones(len(ordered)), np.full(len(outside), figures.num_images / len(outside))])
    scores, is_inside = np.concatenate([ordered, outside]), np.arange(len(weights)) < len(ordered)
    return figures.model_copy(
        update={
            "auroc": float(1 - below.mean() / len(ordered)),
            "aupr_inside": _average_precision(scores, is_inside, weights),
            "aupr_outside": _average_precision(-scores, ~is_inside, weights),
            "tnr_at_tpr95": float((outside < kept).mean()),
            "caught": {name: float((outside < threshold).mean()) for name, threshold in thresholds.items()},
        }
    )


def _average_precision(
    scores: NDArray[np.float64], is_positive: NDArray[np.bool_], weights: NDArray[np.float64]
) -> float:
    """Mean precision over the positives, found from the highest score down; equal scores are found together."""
    order = np.argsort(-scores, kind="stable")
    scores, found = scores[order], np.cumsum((weights * is_positive)[order])
    total = np.cumsum(weights[order])
    last = np.append(scores[1:] != scores[:-1], True)  # of each group of equal scores
    steps = np.diff(found[last], prepend=0.0)
    return float(min((steps * found[last] / total[last]).sum() / found[-1], 1.0))


def _provenance(manifest: Manifest, answers: Answers) -> Provenance:
    before = manifest.provenance
    labelled = "labelled" if answers.labels is not None else "unlabelled"
    return before.model_copy(
        update={
            "data": f"{before.data}; gate of version {manifest.version} calibrated anew on {answers.num_images} "
            f"{labelled} images of {answers.source} (sha256 {answers.digest[:16]})"
        }
    )
