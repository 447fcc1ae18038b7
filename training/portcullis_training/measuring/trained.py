"""A trained run, opened: its classifier, its splits and its readings, as the stages after `fit` need them."""

from dataclasses import dataclass

import torch

from portcullis_training import data
from portcullis_training.errors import DataError
from portcullis_training.fitting import checkpoint
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.fitting.distributed import choose_device
from portcullis_training.fitting.encoding import Encoder
from portcullis_training.fitting.ensemble import method_of
from portcullis_training.measuring.readings import ReadingsOf, cached, of_classifier, of_encoder
from portcullis_training.methods import Method
from portcullis_training.runs.directory import Run


@dataclass(frozen=True, eq=False)
class Trained:
    """What calibrate, evaluate and export start from."""

    run: Run
    method: Method
    classifier: Classifier
    device: torch.device
    splits: data.Splits
    digest: str
    """sha256 of the checkpoint: later figures name the weights that they belong to."""
    read: ReadingsOf
    """What the classifier shows of images."""
    readings_of: ReadingsOf
    """The same, kept in the run's directory."""

    def outside_sets(self) -> dict[str, data.ImageSet]:
        """The outside sets of the config by their short names, in the geometry of the inside images."""
        config = self.run.config
        specs = data.outside_specs(config.outside)
        return {name: data.load_outside(spec, config, self.splits) for name, spec in specs.items()}


def open_trained(run: Run) -> Trained:
    """Load a run's weights and images; refused where the images are not those that it was trained with."""
    saved = checkpoint.load(run.checkpoint_path)
    splits = data.load(run.config.data, run.config)
    changed = [name for name in splits.fingerprints if splits.fingerprints[name] != saved.fingerprints[name]]
    if changed:
        raise DataError(
            f"the {', '.join(changed)} images of {run.config.data} are not those that {run.directory} was trained "
            "with; the gate's promise needs images that training never saw, so train anew"
        )
    device = choose_device(run.config.device)
    classifier = checkpoint.load_classifier(run).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    digest = checkpoint.digest(run.checkpoint_path)
    read = _reading(run, classifier, splits, device)
    kept = cached(read, run.directory / "predictions", key=digest)
    return Trained(run, method_of(run.config), classifier, device, splits, digest, read, kept)


def _reading(run: Run, classifier: Classifier, splits: data.Splits, device: torch.device) -> ReadingsOf:
    """By features that are remembered where a run began frozen, otherwise by the classifier as it is."""
    num_workers = run.config.num_workers
    if not run.config.frozen:
        return of_classifier(classifier, device, num_workers, method_of(run.config))
    return of_encoder(
        classifier, Encoder(classifier, splits.image_spec, device, num_workers, run.directory / "features")
    )
