"""Any timm classifier by name, with its last layer taken off: the method's head goes there."""

from __future__ import annotations

import difflib
import math
from typing import Any

import torch
from torch import Tensor, nn

from portcullis_training.backbones import efficientnet_lite
from portcullis_training.backbones.features import Backbone
from portcullis_training.backbones.weights import DOWNLOAD, PACKAGE, Expectation, Interpolation, State, read_state
from portcullis_training.errors import ConfigError


def build(name: str, pretrained_weights: str | None) -> Backbone:
    """`timm:NAME`, fresh, with weights from a file or a package, or with timm's own download."""
    network = _create(name, is_pretrained=pretrained_weights == DOWNLOAD)
    if pretrained_weights not in (None, DOWNLOAD):
        try:
            network.load_state_dict(_state(name, str(pretrained_weights), network))
        except (RuntimeError, TypeError, KeyError) as error:
            raise ConfigError(f"{pretrained_weights} does not hold the weights of timm:{name}: {error}") from None
    network.reset_classifier(0)  # type: ignore[operator]
    return Backbone(network, nn.Flatten(), _num_features(network, name))


def expectation(name: str) -> Expectation:
    """What the default weights of a classifier expect of an image."""
    timm = _timm()
    _refuse_unknown(name)
    wanted = timm.get_pretrained_cfg(name)
    size = wanted.input_size[-1]
    resized = math.floor(size / wanted.crop_pct)  # as timm's own evaluation does
    interpolation: Interpolation = "bicubic" if wanted.interpolation == "bicubic" else "bilinear"
    return Expectation(size, max(size, resized), interpolation, tuple(wanted.mean), tuple(wanted.std))


def _create(name: str, *, is_pretrained: bool) -> nn.Module:
    timm = _timm()
    _refuse_unknown(name)
    try:
        network: nn.Module = timm.create_model(name, pretrained=is_pretrained)
    except (OSError, RuntimeError) as error:
        if not is_pretrained:
            raise
        raise ConfigError(f"could not download the weights of timm:{name}: {error}") from None
    return network


def _state(name: str, source: str, network: nn.Module) -> State:
    state = read_state(source)
    package = source.removeprefix(PACKAGE)
    if not source.startswith(PACKAGE) or package not in efficientnet_lite.PACKAGES:
        return state
    if efficientnet_lite.PACKAGES[package] != name:
        raise ConfigError(
            f"{source} holds the weights of timm:{efficientnet_lite.PACKAGES[package]}, not of timm:{name}"
        )
    stages: nn.Module = network.blocks  # type: ignore[assignment]
    return efficientnet_lite.to_timm(state, [len(list(stage.children())) for stage in stages.children()])


def _num_features(network: nn.Module, name: str) -> int:
    """By trying: the attribute that says so is not the same in all of timm's networks."""
    size = expectation(name).image_size
    with torch.inference_mode():
        features: Tensor = network.eval()(torch.zeros(1, 3, size, size))
    network.train()
    if features.ndim != 2:
        raise ConfigError(f"timm:{name} gives features of shape {tuple(features.shape)} for an image; choose another")
    return features.shape[1]


def _timm() -> Any:
    from portcullis_training import torchvision_ops  # noqa: F401  timm imports torchvision

    try:
        import timm
    except ImportError:
        raise ConfigError("timm:NAME backbones need the package timm: pip install 'portcullis[photos]'") from None
    return timm


def _refuse_unknown(name: str) -> None:
    known = _timm().list_models()
    if name.partition(".")[0] not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean timm:{nearest[0]}?" if nearest else ""
        raise ConfigError(f"timm has no classifier {name!r}{hint}")
