"""Checkpoints: everything needed to go on exactly where a run stopped, and the weights that the later stages use."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from portcullis_training.data.statistics import ChannelStatistics
from portcullis_training.errors import CheckpointError
from portcullis_training.fitting.classifier import Classifier, build_classifier
from portcullis_training.runs import atomic
from portcullis_training.runs.directory import Run

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two steps. Tensors and plain values only, so that no code is ever loaded."""

    epoch: int
    """Epochs completed."""
    step: int
    """Steps completed of the epoch under way; 0 between two epochs."""
    classifier: dict[str, Tensor]
    averaged: dict[str, Tensor] | None
    """State of the moving average of the weights, where there is one."""
    optimizer: dict[str, Any]
    scaler: dict[str, Any]
    augmentation_generator: Tensor
    generators: list[Tensor]
    """State of each process's global generator."""
    sums: Tensor
    """Running figures of the epoch under way."""
    epoch_seconds: float
    history: list[dict[str, float]]
    class_names: list[str]
    mean: list[float]
    std: list[float]
    fingerprints: dict[str, str]
    image_spec: dict[str, Any]
    precision: str | None = None
    """What the run computes in; chosen again where an older checkpoint does not say."""
    format: int = FORMAT


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint whole or not at all; the previous one stays until the new one is safe on the disk."""
    content = as_plain_dict(checkpoint)

    def write_content(stream: BinaryIO) -> None:
        torch.save(content, stream)

    try:
        atomic.write(path, write_content)
    except (OSError, RuntimeError) as error:  # torch reports a failing stream as RuntimeError
        cause = error if isinstance(error, OSError) else error.__context__ or error
        kept = "; the last good one is still there" if path.exists() else ""
        raise CheckpointError(f"could not write checkpoint {path}: {cause}{kept}") from error


def as_plain_dict(checkpoint: Checkpoint) -> dict[str, Any]:
    """Like dataclasses.asdict, without copying every tensor."""
    return {field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)}


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; weights_only, so that a file from elsewhere cannot run code."""
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}; run `fit` first")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path} is not a readable checkpoint: {str(error).splitlines()[0]}") from None
    names = {field.name for field in fields(Checkpoint)}
    if not isinstance(content, dict) or set(content) | {"precision"} != names or content["format"] != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of this version (format {FORMAT})")
    return Checkpoint(**content)


def digest(path: Path) -> str:
    """sha256 of a checkpoint, by which later stages name the weights that they belong to."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_classifier(run: Run) -> Classifier:
    """The classifier of a run, ready for evaluation: its averaged weights where it keeps them."""
    checkpoint = load(run.checkpoint_path)
    # The checkpoint has all weights, so a file of pretrained ones need not be there any more.
    config = run.config.model_copy(update={"pretrained_weights": None})
    red, green, blue = checkpoint.mean
    statistics = ChannelStatistics((red, green, blue), (checkpoint.std[0], checkpoint.std[1], checkpoint.std[2]))
    classifier = build_classifier(config, len(checkpoint.class_names), statistics)
    state = checkpoint.classifier if checkpoint.averaged is None else _unwrapped(checkpoint.averaged)
    try:
        classifier.load_state_dict(state)
    except RuntimeError as error:
        raise CheckpointError(f"{run.checkpoint_path} does not fit config.json beside it: {error}") from None
    return classifier.eval()


def _unwrapped(averaged: dict[str, Tensor]) -> dict[str, Tensor]:
    """AveragedModel keeps the classifier under `module.` and counts its updates beside it."""
    prefix = "module."
    return {name.removeprefix(prefix): value for name, value in averaged.items() if name.startswith(prefix)}
