"""Backbones: networks from image to features, found by name. Each has the attribute `num_features`.

A name may carry options after a colon: `resnet9:24-48-96-192`, `torchvision:resnet18`. To add one, write a module
with a builder `(options: str) -> Backbone` and add it to BUILDERS.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from portcullis_training.backbones import (
    densenet,
    resnet,
    resnet9,
    small,
    timm_zoo,
    torchvision_zoo,
    whitened,
    wide_resnet,
)
from portcullis_training.backbones.features import Backbone
from portcullis_training.backbones.weights import Expectation
from portcullis_training.errors import ConfigError

Builder = Callable[[str], Backbone]

BUILDERS: dict[str, Builder] = {
    "resnet9": resnet9.build,
    "resnet20": resnet.build_resnet20,
    "resnet34": resnet.build_resnet34,
    "densenet-bc-100": densenet.build,
    "wrn-28-10": wide_resnet.build,
    "small": small.build,
    "whitened": whitened.build,
    "whitened-residual": whitened.build_residual,
}

ZOOS = {"timm": timm_zoo, "torchvision": torchvision_zoo}

__all__ = ["Backbone", "Expectation", "build", "expectation", "names"]


def names() -> list[str]:
    """The backbones that can be asked for; a zoo stands for any classifier of that library."""
    return [*BUILDERS, *(f"{zoo}:NAME" for zoo in ZOOS)]


def expectation(name: str) -> Expectation | None:
    """How images must be prepared for the pretrained weights of a backbone; None where there are none."""
    kind, _, options = name.partition(":")
    return ZOOS[kind].expectation(options) if kind in ZOOS else None


def build(name: str, *, pretrained_weights: str | None = None) -> Backbone:
    """A fresh backbone by name; only those of a zoo take pretrained weights."""
    kind, _, options = name.partition(":")
    if kind in ZOOS:
        return ZOOS[kind].build(options, pretrained_weights)
    if pretrained_weights is not None:
        raise ConfigError(f"pretrained_weights is for timm:NAME and torchvision:NAME backbones, got {name!r}")
    if kind not in BUILDERS:
        nearest = difflib.get_close_matches(kind, BUILDERS, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise ConfigError(f"unknown backbone {name!r}; expected one of {', '.join(names())}{hint}")
    return BUILDERS[kind](options)
