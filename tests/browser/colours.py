"""Bundles for the console's tests: the tiny bundle with outside figures really measured, examples and a plot."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle import gate
from portcullis.bundle.files import Bundle, write_bundle
from portcullis.bundle.manifest import Figures, Manifest, OutsideFigures
from tests import tiny
from tests.service.pictures import encode

NUM_QUANTILES = 201
Pixels = NDArray[np.uint8]


def greys(num_images: int, seed: int) -> Pixels:
    """Noisy grey images: no class of the tiny bundle."""
    random = np.random.default_rng(seed)
    level = random.uniform(60, 200, (num_images, 1, 1, 1))
    noise = random.normal(0, 30, (num_images, tiny.SIZE, tiny.SIZE, 3)) + random.normal(0, 18, (num_images, 1, 1, 3))
    return np.clip(level + noise, 0, 255).astype(np.uint8)


def mixtures(num_images: int, seed: int) -> Pixels:
    """Yellow, cyan and magenta: half way between two classes."""
    random = np.random.default_rng(seed)
    colours = (1 - np.eye(3))[random.integers(0, 3, num_images)][:, None, None, :] * 150 + 40
    noise = random.normal(0, 30, (num_images, tiny.SIZE, tiny.SIZE, 3)) + random.normal(0, 40, (num_images, 1, 1, 3))
    return np.clip(colours + noise, 0, 255).astype(np.uint8)


OUTSIDE = {"greys": greys, "mixtures": mixtures}


def write(models: Path, name: str, version: int = 1, sharpness: float = 1.0) -> Bundle:
    """Write one version below a models directory."""
    manifest = tiny.manifest(name, version, sharpness)
    manifest = manifest.model_copy(update={"figures": _figures(manifest, sharpness)})
    files = {
        "model.onnx": tiny.graph(sharpness=sharpness),
        "report.md": _report(manifest).encode(),
        "plots/scores.png": _plot(manifest, sharpness),
        **_examples(),
    }
    return write_bundle(models, manifest, files)


def _figures(manifest: Manifest, sharpness: float) -> Figures:
    images, labels = tiny.familiar(500, seed=2)
    probabilities, inside = tiny.answers(images, sharpness)
    points = {point.name: point.threshold for point in manifest.operating_points}
    hits = np.eye(3)[labels]
    return Figures(
        num_images=len(images),
        accuracy=float((probabilities.argmax(axis=1) == labels).mean()),
        ece=float(abs(probabilities.max(axis=1).mean() - (probabilities.argmax(axis=1) == labels).mean())),
        nll=float(-np.log(probabilities[np.arange(len(labels)), labels]).mean()),
        brier=float(((probabilities - hits) ** 2).sum(axis=1).mean()),
        rejected={name: float((inside < threshold).mean()) for name, threshold in points.items()},
        outside={
            name: _outside(inside, tiny.answers(draw(500, seed=3), sharpness)[1], points)
            for name, draw in OUTSIDE.items()
        },
    )


def _outside(inside: NDArray[np.float32], outside: NDArray[np.float32], points: dict[str, float]) -> OutsideFigures:
    wins = (inside[:, None] > outside[None, :]).mean() + 0.5 * (inside[:, None] == outside[None, :]).mean()
    keeps_95 = np.quantile(inside, 0.05)
    return OutsideFigures(
        num_images=len(outside),
        auroc=float(wins),
        aupr_inside=float(wins),  # not shown in the console
        aupr_outside=float(wins),
        tnr_at_tpr95=float((outside < keeps_95).mean()),
        caught={name: float((outside < threshold).mean()) for name, threshold in points.items()},
        score_quantiles=tuple(np.quantile(outside, np.linspace(0, 1, NUM_QUANTILES)).tolist()),
    )


def _report(manifest: Manifest) -> str:
    rows = "\n".join(f"| {p.name} | {p.threshold:.4f} | ≤ {p.alpha:.1%} |" for p in manifest.operating_points)
    return f"""# {manifest.name}, version {manifest.version}

Tells apart **red**, **green** and **blue** in images of {tiny.SIZE}×{tiny.SIZE} pixels. Markup stays text: <b>bold</b>.

## Gate

| operating point | threshold | familiar images rejected |
| --- | --- | --- |
{rows}

![Scores inside and outside](plots/scores.png)
"""


def _plot(manifest: Manifest, sharpness: float, height: int = 160) -> bytes:
    """A histogram of the calibration scores, drawn pixel by pixel."""
    counts, _ = np.histogram(manifest.calibration.scores, bins=80)
    rows = np.arange(height)[::-1, None]
    columns = np.repeat(counts * (height - 8) / counts.max(), 6)[None, :]
    return encode(np.where((rows < columns)[..., None], (0, 114, 178), (255, 255, 255)).astype(np.uint8))


def _examples() -> dict[str, bytes]:
    familiar, labels = tiny.familiar(12, seed=7)
    chosen = {tiny.LABELS[label]: image for label, image in zip(labels, familiar, strict=True)}
    files = {f"examples/familiar/{label}.png": encode(image) for label, image in chosen.items()}
    return files | {f"examples/strange/{name}.png": encode(draw(1, seed=8)[0]) for name, draw in OUTSIDE.items()}


def operating_point(name: str) -> gate.OperatingPoint:
    """An operating point of the tiny bundle, as the gate itself computes it."""
    return gate.operating_point(name, tiny.manifest().calibration)
