"""The first stage of a run that begins frozen: encode every photo once, train the head on the features, keep both."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from portcullis_training import data, methods
from portcullis_training.fitting import checkpoint
from portcullis_training.fitting.checkpoint import Checkpoint
from portcullis_training.fitting.classifier import Classifier, build_classifier
from portcullis_training.fitting.encoding import Encoder
from portcullis_training.fitting.frozen_head import train_head
from portcullis_training.fitting.pretraining import normalisation
from portcullis_training.methods.formulas.centring import CentredHead
from portcullis_training.runs.directory import Run

STAGE = "frozen"


def fit_frozen(run: Run, splits: data.Splits, device: torch.device) -> dict[str, float]:
    """Train and keep the head of a run on its frozen backbone; the one row of its history."""
    config = run.config
    started = time.perf_counter()
    torch.manual_seed(config.seed)
    classifier = build_classifier(config, splits.num_classes, normalisation(config, splits.train))
    classifier.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    encoder = Encoder(classifier, splits.image_spec, device, config.num_workers)
    encoded = encoder.encode([splits.train, *splits.held_out])  # the latter are not looked at, only remembered
    encoding_seconds = time.perf_counter() - started
    assert isinstance(classifier.head, CentredHead)
    features = [part.features.to(device) for part in encoded[:2]]
    labels = [torch.from_numpy(part.labels).to(device) for part in (splits.train, splits.validation)]
    loss = train_head(
        classifier.head, methods.find(config.method), features[0], labels[0],
        seed=config.seed, class_balance=config.class_balance,
    )  # fmt: skip
    accuracy, validation_accuracy = (_accuracy(classifier, *part) for part in zip(features, labels, strict=True))
    row = {
        "epoch": 0,
        "loss": loss,
        "accuracy": accuracy,
        "validation_accuracy": validation_accuracy,
        "encoding_seconds": encoding_seconds,
        "seconds": time.perf_counter() - started,
    }
    checkpoint.save(run.checkpoint_path, _state(classifier, splits, row))
    return row


@torch.inference_mode()
def _accuracy(classifier: Classifier, features: Tensor, labels: Tensor) -> float:
    """By counting, as after every epoch: a mean in float32 would make ties of the two stages look like gains."""
    return int((classifier.head(features).argmax(dim=1) == labels).sum()) / len(labels)


def _state(classifier: Classifier, splits: data.Splits, row: dict[str, float]) -> Checkpoint:
    """Weights and what they belong to; there is no optimiser to go on with."""
    return Checkpoint(
        epoch=0,
        step=0,
        classifier={name: tensor.cpu() for name, tensor in classifier.state_dict().items()},
        averaged=None,
        optimizer={},
        scaler={},
        augmentation_generator=torch.Generator().get_state(),
        generators=[],
        sums=torch.zeros(5),
        epoch_seconds=0.0,
        history=[row],
        class_names=list(splits.class_names),
        mean=classifier.mean.flatten().tolist(),
        std=classifier.std.flatten().tolist(),
        fingerprints=splits.fingerprints,
        image_spec=splits.image_spec.model_dump(),
    )
