"""Any torchvision classifier by name, with its last layer taken off: the method's head goes there."""

from __future__ import annotations

import difflib
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training.backbones.features import Backbone
from training.errors import ConfigError

DOWNLOAD = "download"


def build(name: str, pretrained_weights: str | None) -> Backbone:
    """`torchvision:NAME`, fresh, with weights from a file, or with torchvision's own download."""
    from training import torchvision_ops  # noqa: F401  before torchvision
    from torchvision import models  # isort: skip

    known = models.list_models(module=models)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean torchvision:{nearest[0]}?" if nearest else ""
        raise ConfigError(f"torchvision has no classifier {name!r}{hint}")
    options: dict[str, Any] = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    if name in ("googlenet", "inception_v3"):
        options["aux_logits"] = False  # a second loss is not part of any method here
    network: nn.Module = models.get_model(name, weights=None, **options)
    if pretrained_weights is not None:
        try:
            network.load_state_dict(_read_weights(name, pretrained_weights))
        except (RuntimeError, TypeError) as error:
            raise ConfigError(
                f"{pretrained_weights} does not hold the weights of torchvision:{name}: {error}"
            ) from None
    num_features = _remove_last_linear(network, name)
    return Backbone(network, nn.Flatten(), num_features)


def _read_weights(name: str, source: str) -> dict[str, Any]:
    from torchvision import models

    if source == DOWNLOAD:
        try:
            state: dict[str, Any] = models.get_model_weights(name)["DEFAULT"].get_state_dict(progress=True)
            return state
        except OSError as error:  # URLError is one
            raise ConfigError(f"could not download the weights of torchvision:{name}: {error}") from None
    if not Path(source).is_file():
        raise ConfigError(f"pretrained_weights: expected a file or {DOWNLOAD!r}, got {source!r}")
    try:
        loaded: dict[str, Any] = torch.load(source, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ConfigError(f"{source} is not a file of weights: {str(error).splitlines()[0]}") from None
    return loaded


def _remove_last_linear(network: nn.Module, name: str) -> int:
    """Put Identity in place of the layer that made the logits, and say how many features came into it."""
    for path, layer in reversed(list(network.named_modules())):
        if isinstance(layer, nn.Linear):
            parent, _, attribute = path.rpartition(".")
            setattr(network.get_submodule(parent), attribute, nn.Identity())
            return layer.in_features
    raise ConfigError(f"torchvision:{name} does not end in a linear layer; choose another classifier")
