"""A bundle measured as it is served, by the service's own engine; it needs no run, but the images that it was made of.

The recipe in the bundle says which of those images were set aside as test images. Images that give other splits are
refused, since what would be measured might be what the bundle was trained or calibrated with.
"""

from collections.abc import Sequence

from portcullis.bundle.engine import Engine
from portcullis.bundle.files import MODEL_FILE, Bundle
from portcullis_training import data
from portcullis_training.config import RunConfig
from portcullis_training.errors import ConfigError, DataError
from portcullis_training.measuring.evaluation import Evaluation, measure
from portcullis_training.measuring.predictions import Predict, of_engine
from portcullis_training.runs.directory import read_config


def evaluate_bundle(bundle: Bundle, where: str | None = None, outside: Sequence[str] | None = None) -> Evaluation:
    """Measure a bundle on its test images and on outside sets; `where` are its images, if not where its recipe says."""
    config = recipe_of(bundle, where)
    specs = data.outside_specs(config.outside if outside is None else outside)
    splits = splits_of(bundle, config)
    return measure(
        predict_of(bundle, config),
        splits.test,
        {name: data.load_outside(spec, config, splits) for name, spec in specs.items()},
        bundle.manifest.operating_points,
        checkpoint=bundle.manifest.files[MODEL_FILE],
    )


def predict_of(bundle: Bundle, config: RunConfig) -> Predict:
    """What the service's engine answers with it."""
    manifest = bundle.manifest
    return of_engine(Engine(bundle), manifest.score_name, manifest.part_names, config.num_workers)


def splits_of(bundle: Bundle, config: RunConfig) -> data.Splits:
    """The images that it was made of, split as they were then; any others are refused."""
    splits, provenance = data.load(config.data, config), bundle.manifest.provenance
    if splits.fingerprint != provenance.data_fingerprint:
        raise DataError(
            f"the images of {config.data} are not those that {bundle.label} was made of ({provenance.data}, "
            f"fingerprint {provenance.data_fingerprint[:16]}, got {splits.fingerprint[:16]}): among its test images "
            "could be some that it was trained or calibrated with"
        )
    return splits


def recipe_of(bundle: Bundle, where: str | None = None) -> RunConfig:
    """The config of the run that it came from, as it lies in the bundle, with its images `where` they are here."""
    file = bundle.manifest.provenance.recipe
    if file not in bundle.manifest.files:
        raise ConfigError(f"{bundle.label} has no recipe of its run, which would tell its test images from the others")
    config = read_config(bundle.path / file)
    return config if where is None else config.model_copy(update={"data": where})
