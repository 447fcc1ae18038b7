"""`python -m bench.frozen_heads PHOTOS`: what a head on frozen features is worth, by cross-validation.

Training and validation photos of a folder are dealt into five; each fifth is answered by heads trained on the rest:
DisMax with all features and with half of them at a time, and scikit-learn's logistic regression. Photos that were
encoded before are not encoded again.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from portcullis_training import data, methods
from portcullis_training.commands import host
from portcullis_training.fitting.classifier import build_classifier
from portcullis_training.fitting.encoding import Encoder
from portcullis_training.fitting.frozen_head import train_head
from portcullis_training.fitting.pretraining import normalisation, with_geometry
from portcullis_training.measuring.temperature import fit_temperature, probabilities_at
from portcullis_training.methods.formulas import centring
from portcullis_training.methods.formulas.centring import CentredHead
from portcullis_training.recipes import RECIPES

NUM_FOLDS = 5
CPU = torch.device("cpu")
Head = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Logits of the third from the features and labels of the first two."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.frozen_heads", description=__doc__)
    parser.add_argument("photos", type=Path, help="a folder of photos, a class a sub-folder")
    host.settle()
    features, labels = _encoded(parser.parse_args().photos)
    heads: dict[str, Head] = {
        "DisMax, all features": _dismax(0.0),
        "DisMax, half of the features at a time": _dismax(centring.DROPPED),
        "logistic regression": _logistic,
    }
    print("| head | photos right | NLL |\n| --- | --- | --- |")
    for name, head in heads.items():
        logits = _left_out(head, features, labels)
        probabilities = probabilities_at(logits, fit_temperature(logits, labels.numpy()).temperature)
        right = (logits.argmax(axis=1) == labels.numpy()).mean()
        nll = -np.log(probabilities[np.arange(len(labels)), labels.numpy()]).mean()
        print(f"| {name} | {right:.2%} | {nll:.4f} |", flush=True)


def _encoded(photos: Path) -> tuple[Tensor, Tensor]:
    config = with_geometry(RECIPES["photos"].model_copy(update={"data": f"folder:{photos}"}))
    splits = data.load(config.data, config)
    classifier = build_classifier(config, splits.num_classes, normalisation(config, splits.train))
    encoder = Encoder(classifier, splits.image_spec, CPU, config.num_workers)
    parts = (splits.train, splits.validation)
    features = torch.cat([encoded.features for encoded in encoder.encode(parts)])
    return features, torch.from_numpy(np.concatenate([part.labels for part in parts]))


def _left_out(head: Head, features: Tensor, labels: Tensor) -> np.ndarray:
    """(N, C) logits, each by a head that has not seen the photo."""
    folds = torch.zeros_like(labels)  # every class in turn, so that none is missing from a fold's training photos
    folds[torch.argsort(labels, stable=True)] = torch.arange(len(labels)) % NUM_FOLDS
    logits = torch.zeros(len(labels), int(labels.max()) + 1)
    for fold in range(NUM_FOLDS):
        is_asked = folds == fold
        logits[is_asked] = head(features[~is_asked], labels[~is_asked], features[is_asked])
    return logits.numpy()


def _dismax(dropped: float) -> Head:
    def answer(features: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
        method = methods.find("dismax")
        head = CentredHead(method.make_head(features.shape[1], int(labels.max()) + 1), features.shape[1])
        head.dropout.p = dropped
        train_head(head, method, features, labels, seed=0)
        with torch.no_grad():
            logits: Tensor = head(asked)
        return logits

    return answer


def _logistic(features: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
    mean, deviation = features.mean(dim=0), features.std(dim=0) + 1e-6
    model = LogisticRegression(C=0.01, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(((features - mean) / deviation).numpy(), labels.numpy())
    return torch.from_numpy(model.decision_function(((asked - mean) / deviation).numpy())).float()


if __name__ == "__main__":
    main()
