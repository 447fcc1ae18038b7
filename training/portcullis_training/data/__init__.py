"""Data specs → inside splits and outside sets.

`load("cifar10", config)` gives the four splits of a run; `load_outside("svhn", config, splits)` a set of strangers in
the same geometry.
"""

from __future__ import annotations

from dataclasses import replace

from portcullis_training.config import RunConfig
from portcullis_training.data.image_set import (
    ArrayImages,
    FileImages,
    ImageSet,
    as_array,
    in_order,
    to_float,
)
from portcullis_training.data.outside import load_outside, outside_specs
from portcullis_training.data.sources import Source
from portcullis_training.data.specs import read_source
from portcullis_training.data.splits import Splits, split
from portcullis_training.data.statistics import channel_statistics
from portcullis_training.errors import DataError

__all__ = [
    "ArrayImages", "FileImages", "ImageSet", "Splits", "as_array", "channel_statistics", "in_order", "load",
    "load_outside", "outside_specs", "to_float",
]  # fmt: skip


def load(spec: str, config: RunConfig) -> Splits:
    """The inside images of a spec, split as the config says."""
    return split(
        spec,
        _named(spec, read_source(spec, config), config.class_names),
        seed=config.seed if config.split_seed is None else config.split_seed,
        wanted={
            "validation": config.validation_size,
            "calibration": config.calibration_size,
            "test": config.test_size,
        },
    )


def _named(spec: str, source: Source, class_names: tuple[str, ...] | None) -> Source:
    """The source with human names for its classes, where the config gives them, each a class's own."""
    class_names = source.class_names if class_names is None else class_names
    twice = [name for name in class_names if class_names.count(name) > 1]
    if twice:  # a bundle is answered by label; better refused now than when it is exported
        raise DataError(f"{spec}: two classes are called {twice[0]!r}; give them different names (--class-names)")
    if len(class_names) != len(source.class_names):
        raise DataError(f"{spec}: expected {len(source.class_names)} class names, one a class, got {len(class_names)}")
    return replace(source, class_names=class_names)
