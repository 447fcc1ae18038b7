"""`python -m bench.left_out PHOTOS`: near strangers, by leaving classes out of training entirely.

Each seed draws classes to leave out of a folder of photos, trains the heads of DisMax and of its SoftMax twin on the
others by the recipe `photos`, frozen, and measures how well each score tells the test photos of the classes left out
from those of the others. Photos that were encoded before are not encoded again.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from portcullis_training import data, methods
from portcullis_training.commands import host
from portcullis_training.config import RunConfig
from portcullis_training.data import FileImages
from portcullis_training.fitting.classifier import build_classifier
from portcullis_training.fitting.encoding import Encoder
from portcullis_training.fitting.frozen_head import train_head
from portcullis_training.fitting.pretraining import normalisation, with_geometry
from portcullis_training.measuring.calibration import calibrate_trained
from portcullis_training.measuring.evaluation import Evaluation, measure
from portcullis_training.measuring.predictions import of_readings
from portcullis_training.measuring.readings import of_encoder
from portcullis_training.measuring.trained import Trained
from portcullis_training.methods.formulas.centring import CentredHead
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import Run

OUTSIDE = "left out"
GATED_BY = {"dismax": "fitted", "softmax": "own"}
SCORES = {
    "DisMax, MMLES": ("dismax", "mmles"),
    "DisMax, MPS": ("dismax", "max_probability"),
    "DisMax, fitted score": ("dismax", "fitted"),
    "SoftMax, Energy": ("softmax", "energy"),
    "SoftMax, MPS": ("softmax", "max_probability"),
}
CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.left_out", description=__doc__)
    parser.add_argument("photos", type=Path, help="a folder of photos, a class a sub-folder")
    parser.add_argument("--classes", type=int, default=7, help="how many are left out (default: %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("docs/results/left-out.json"))
    arguments = parser.parse_args()
    host.settle()
    config = RECIPES["photos"].model_copy(
        update={"data": f"folder:{arguments.photos}", "outside": (), "epochs": 0, "minutes": None}
    )
    seeds = [_measure(with_geometry(config), arguments.classes, seed) for seed in arguments.seeds]
    arguments.out.write_text(json.dumps({"photos": arguments.photos.name, "seeds": seeds}, indent=1) + "\n")
    print("\n".join(table(seeds)))


def table(seeds: Sequence[dict]) -> list[str]:
    """Markdown: AUROC in %, mean and deviation over the seeds, and each seed's."""
    lines = [
        "| score | AUROC, mean ± deviation | " + " | ".join(f"seed {one['seed']}" for one in seeds) + " |",
        "| --- | --- |" + " --- |" * len(seeds),
    ]
    for title in SCORES:
        values = [100 * one["auroc"][title] for one in seeds]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        shown = " | ".join(f"{value:.1f}" for value in values)
        lines.append(f"| {title} | {statistics.mean(values):.1f} ± {spread:.1f} | {shown} |")
    return lines


def _measure(config: RunConfig, num_classes: int, seed: int) -> dict:
    splits = data.load(config.data, config)
    left_out = np.sort(np.random.default_rng(seed).choice(splits.num_classes, num_classes, replace=False))
    kept = np.setdiff1d(np.arange(splits.num_classes), left_out)
    inside = replace(
        splits,
        class_names=tuple(splits.class_names[label] for label in kept),
        **{part: _of_classes(getattr(splits, part), kept) for part in ("train", "validation", "calibration", "test")},
    )
    strangers = _of_classes(splits.test, left_out)
    found = {method: _evaluation(config, method, seed, inside, strangers) for method in GATED_BY}
    return {
        "seed": seed,
        "left_out": [splits.class_names[label] for label in left_out],
        "num_inside": len(inside.test),
        "num_outside": len(strangers),
        "accuracy": {method: evaluation.inside.accuracy for method, evaluation in found.items()},
        "auroc": {
            title: found[method].outside[OUTSIDE].by_score[score].auroc_inside_positive
            for title, (method, score) in SCORES.items()
        },
    }


def _of_classes(images: data.ImageSet, classes: np.ndarray) -> FileImages:
    """The photos of some classes, which are counted anew from 0."""
    assert isinstance(images, FileImages)
    chosen = images.subset(np.flatnonzero(np.isin(images.labels, classes)))
    return replace(chosen, labels=np.searchsorted(classes, chosen.labels))


def _evaluation(base: RunConfig, name: str, seed: int, splits: data.Splits, strangers: data.ImageSet) -> Evaluation:
    """As a run would be trained, calibrated and evaluated, in memory."""
    print(f"seed {seed}: {name}", flush=True)
    config = base.model_copy(update={"method": name, "seed": seed, "score": GATED_BY[name]})
    method = methods.find(name)
    torch.manual_seed(seed)
    classifier = build_classifier(config, splits.num_classes, normalisation(config, splits.train)).eval()
    encoder = Encoder(classifier, splits.image_spec, CPU, config.num_workers)
    assert isinstance(classifier.head, CentredHead)
    (train,) = encoder.encode([splits.train])
    train_head(classifier.head, method, train.features, torch.from_numpy(splits.train.labels), seed=seed)
    read = of_encoder(classifier, encoder)
    trained = Trained(Run(Path(), config), method, classifier, CPU, splits, "0" * 64, read, read)
    calibration, score = calibrate_trained(trained)
    predict = of_readings(read, method, calibration.temperature, score)
    return measure(predict, splits.test, {OUTSIDE: strangers}, calibration.operating_points, checkpoint=trained.digest)


if __name__ == "__main__":
    main()
