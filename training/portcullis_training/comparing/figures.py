"""The paper's figures of trained runs, side by side: loss landscapes, mean logits, and what a compound image is."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from portcullis_training.comparing.compare import parse_variant
from portcullis_training.comparing.landscape import landscape
from portcullis_training.data import ImageSet, as_array
from portcullis_training.errors import ConfigError
from portcullis_training.exporting import plots
from portcullis_training.measuring.calibration import load_calibration
from portcullis_training.measuring.evaluation import predict_of
from portcullis_training.measuring.metrics import Array
from portcullis_training.measuring.trained import Trained, open_trained
from portcullis_training.mixing.fractional import NUM_PATCHES, compound_images, compound_targets
from portcullis_training.runs import atomic
from portcullis_training.runs.directory import Run

NUM_IMAGES = 500
"""Training images that the loss is taken of."""
NUM_LEVELS = 12
Landscapes = Mapping[str, tuple[Array, Array]]


def draw_figures(runs: Sequence[Run], output: Path, num_places: int) -> list[Path]:
    """Write contours, surfaces, mean logits and a compound image, and the losses behind them as JSON."""
    output.mkdir(parents=True, exist_ok=True)
    found: dict[str, tuple[Array, Array]] = {}
    files: dict[str, bytes] = {}
    for run in runs:
        trained = open_trained(run)
        title = run_title(run)
        if title in found:
            raise ConfigError(f"two of the runs are {title}; figures stand side by side by method")
        found[title] = _landscape_of(trained, num_places)
        files[f"mean-logits-{run.config.name}.png"] = _mean_logits(trained, title)
        if "compound.png" not in files:
            files["compound.png"] = compound_picture(trained.splits.train, trained.splits.class_names)
    files |= {"landscape-contours.png": contours(found), "landscape-surfaces.png": surfaces(found)}
    for name, content in files.items():
        (output / name).write_bytes(content)
    raw = {title: {"places": places.tolist(), "losses": losses.tolist()} for title, (places, losses) in found.items()}
    atomic.write_text(output / "landscapes.json", json.dumps(raw, indent=1) + "\n")
    return [output / name for name in [*files, "landscapes.json"]]


def run_title(run: Run) -> str:
    """As tables print it."""
    return parse_variant(run.config.variant).title


def contours(found: Landscapes) -> bytes:
    """Lines of equal loss, a panel a method, all by the same levels of the logarithm."""
    figure = Figure(figsize=(4.2 * len(found), 4), dpi=110, layout="constrained")
    levels = _levels(found)
    for number, (title, (places, losses)) in enumerate(found.items(), start=1):
        axes = figure.add_subplot(1, len(found), number)
        drawn = axes.contour(places, places, np.log10(losses + 1e-6), levels=levels, cmap="viridis", linewidths=0.8)
        axes.clabel(drawn, fontsize=6, fmt="%.1f")
        axes.plot(0, 0, marker="+", color="#d1495b")
        axes.set(title=f"{title}: log₁₀ of the training loss", aspect="equal")
    return plots.png(figure)


def surfaces(found: Landscapes) -> bytes:
    """The same as surfaces."""
    figure = Figure(figsize=(4.2 * len(found), 4), dpi=110, layout="constrained")
    levels = _levels(found)
    for number, (title, (places, losses)) in enumerate(found.items(), start=1):
        axes = figure.add_subplot(1, len(found), number, projection="3d")
        across, along = np.meshgrid(places, places)
        axes.plot_surface(across, along, np.log10(losses + 1e-6), cmap="viridis", linewidth=0)
        axes.set(title=title, zlim=(levels[0], levels[-1]), zlabel="log₁₀ of the training loss")
        axes.set_box_aspect(None, zoom=0.85)  # room for the label beside the last panel
    return plots.png(figure)


def compound_picture(images: ImageSet, class_names: Sequence[str]) -> bytes:
    """Four training images, the compound of the last, and the shares of its classes."""
    chosen = images.subset(np.linspace(0, len(images) - 1, NUM_PATCHES).astype(np.int64))
    pixels = as_array(chosen)
    labels = torch.from_numpy(chosen.labels)
    compound = compound_images(torch.from_numpy(pixels).permute(0, 3, 1, 2))[-1].permute(1, 2, 0).numpy()
    shares = compound_targets(labels, len(class_names))[-1]
    said = ", ".join(
        f"{class_names[index]} {float(shares[index]):.0%}" for index in shares.nonzero().flatten().tolist()
    )
    figure = Figure(figsize=(2 * (NUM_PATCHES + 1), 2.4), dpi=110, layout="constrained")
    titles = [*(class_names[label] for label in labels.tolist()), said]
    for number, (picture, title) in enumerate(zip([*pixels, compound], titles, strict=True), start=1):
        axes = figure.add_subplot(1, NUM_PATCHES + 1, number)
        axes.imshow(picture)
        axes.set_title(title, fontsize=7, wrap=True)
        axes.set_axis_off()
    return plots.png(figure)


def _landscape_of(trained: Trained, num_places: int) -> tuple[Array, Array]:
    train = trained.splits.train
    chosen = np.linspace(0, len(train) - 1, min(NUM_IMAGES, len(train))).astype(np.int64)
    return landscape(trained.classifier.cpu(), trained.method, train.subset(chosen), num_places=num_places)


def _mean_logits(trained: Trained, title: str) -> bytes:
    predict = predict_of(trained, load_calibration(trained))
    outside = {name: predict(f"outside {name}", images) for name, images in trained.outside_sets().items()}
    return plots.score_histograms(
        predict("test", trained.splits.test).mean_logits,
        {name: answers.mean_logits for name, answers in outside.items()},
        "mean logit",
        f"{title}: mean logit in- and out-of-distribution",
    )


def _levels(found: Landscapes) -> Array:
    """Evenly spaced over all panels, so that they can be compared."""
    logarithms = np.concatenate([np.log10(losses + 1e-6).ravel() for _, losses in found.values()])
    finite = logarithms[np.isfinite(logarithms)]
    levels: Array = np.linspace(finite.min(), finite.max() + 1e-6, NUM_LEVELS)
    return levels
