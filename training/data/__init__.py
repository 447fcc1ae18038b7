"""Data specs → inside splits and outside sets.

`load("cifar10", config)` gives the four splits of a run; `load_outside("svhn", config, splits)` a set of strangers in
the same geometry.
"""

from __future__ import annotations

from dataclasses import replace

from training.data.image_set import ArrayImages, FileImages, ImageSet, as_array, in_order, to_float
from training.data.outside import load_outside
from training.data.sources import Source
from training.data.specs import read_source
from training.data.splits import Splits, channel_statistics, split
from training.errors import DataError
from training.recipes import RunConfig

__all__ = [
    "ArrayImages", "FileImages", "ImageSet", "Splits", "as_array", "channel_statistics", "in_order", "load",
    "load_outside", "to_float",
]  # fmt: skip


def load(spec: str, config: RunConfig) -> Splits:
    """The inside images of a spec, split as the config says."""
    return split(
        spec,
        _named(spec, read_source(spec, config), config.class_names),
        seed=config.seed,
        validation_size=config.validation_size,
        calibration_size=config.calibration_size,
        test_size=config.test_size,
    )


def _named(spec: str, source: Source, class_names: tuple[str, ...] | None) -> Source:
    """The source with human names for its classes, where the config gives them."""
    if class_names is None:
        return source
    if len(class_names) != len(source.class_names):
        raise DataError(f"{spec}: expected {len(source.class_names)} class names, one a class, got {len(class_names)}")
    return replace(source, class_names=class_names)
