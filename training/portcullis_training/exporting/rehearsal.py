"""Rehearse what comes after training, on a few images and in a directory that is thrown away.

Score, gate, figures, report, graph and parity go the way of a real run, so that what would fail there after hours fails
here in seconds. Its figures say nothing, and are shown to nobody.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from portcullis_training import data
from portcullis_training.config import RunConfig
from portcullis_training.data.image_set import Indices
from portcullis_training.exporting.export import Measured, refuse_what_is_no_graph, write_measured
from portcullis_training.fitting.ensemble import method_of
from portcullis_training.fitting.trial import Trial
from portcullis_training.measuring.calibration import calibrate_by
from portcullis_training.measuring.evaluation import measure
from portcullis_training.measuring.predictions import of_readings
from portcullis_training.measuring.readings import cached, of_classifier
from portcullis_training.measuring.temperature import unfitted
from portcullis_training.measuring.trained import Trained
from portcullis_training.runs.directory import Run

NUM_IMAGES = 64
"""Of each split, but a few of every class for training."""
NUM_OF_A_CLASS = 2


def rehearse(tried: Trial, config: RunConfig) -> int:
    """The size of the bundle that was written and thrown away, in bytes."""
    refuse_what_is_no_graph(method_of(config))
    with tempfile.TemporaryDirectory() as directory:
        trained = _with_few_images(tried, config, Path(directory))
        calibration, score = calibrate_by(trained, unfitted)
        predict = of_readings(trained.readings_of, trained.method, calibration.temperature, score, calibration.ablation)
        evaluation = measure(
            predict,
            trained.splits.test,
            trained.outside_sets(),
            calibration.operating_points,
            checkpoint=trained.digest,
        )
        bundle = write_measured(trained, Measured(calibration, score, evaluation), Path(directory))
        return sum((bundle.path / file).stat().st_size for file in bundle.manifest.files)


def _with_few_images(tried: Trial, config: RunConfig, directory: Path) -> Trained:
    splits = tried.splits
    few = replace(
        splits,
        train=splits.train.subset(_some_of_each(splits.train.labels)),
        validation=_spread(splits.validation),
        calibration=_spread(splits.calibration),
        test=_spread(splits.test),
    )
    # Sets of strangers may be as large as they like: the real ones are left to the run, and this is as small as test.
    run = Run(Path(), config.model_copy(update={"outside": ("shuffled",)}))
    read, digest = of_classifier(tried.classifier, tried.device), "0" * 64
    kept = cached(read, directory / "predictions", key=digest)
    return Trained(run, method_of(config), tried.classifier, tried.device, few, digest, read, kept)


def _some_of_each(labels: Indices) -> Indices:
    chosen = [np.flatnonzero(labels == label)[:NUM_OF_A_CLASS] for label in np.unique(labels)]
    return np.sort(np.concatenate(chosen))


def _spread(images: data.ImageSet) -> data.ImageSet:
    return images.subset(np.linspace(0, len(images) - 1, min(NUM_IMAGES, len(images))).astype(np.int64))
