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
WITH_AUXILIARY = ("googlenet", "inception_v3")


def build(name: str, pretrained_weights: str | None) -> Backbone:
    """`torchvision:NAME`, fresh, with weights from a file, or with torchvision's own download."""
    from training import torchvision_ops  # noqa: F401  before torchvision
    from torchvision import models  # isort: skip

    known = models.list_models(module=models)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean torchvision:{nearest[0]}?" if nearest else ""
        raise ConfigError(f"torchvision has no classifier {name!r}{hint}")
    # Explicit initialisation saves these two from a warning and minutes of sampling.
    options: dict[str, Any] = {"init_weights": True, "aux_logits": True} if name in WITH_AUXILIARY else {}
    network: nn.Module = models.get_model(name, weights=None, **options)
    if pretrained_weights is not None:
        try:
            network.load_state_dict(_read_weights(name, pretrained_weights))
        except (RuntimeError, TypeError) as error:
            raise ConfigError(
                f"{pretrained_weights} does not hold the weights of torchvision:{name}: {error}"
            ) from None
    if name in WITH_AUXILIARY:
        _remove_auxiliary(network)
    return Backbone(network, nn.Flatten(), _remove_last_layer(network, name))


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


def _remove_auxiliary(network: nn.Module) -> None:
    """Take the second classifiers off: no method here has a second loss. Pretrained files hold them, so not before."""
    network.aux_logits = False  # type: ignore[assignment]
    for attribute in ("AuxLogits", "aux1", "aux2"):
        if hasattr(network, attribute):
            setattr(network, attribute, None)


def _remove_last_layer(network: nn.Module, name: str) -> int:
    """Put Identity in place of the layer that made the logits, and say how many features came into it."""
    for path, layer in reversed(list(network.named_modules())):
        if isinstance(layer, nn.Linear | nn.Conv2d):  # SqueezeNet's last layer is a 1×1 convolution
            parent, _, attribute = path.rpartition(".")
            setattr(network.get_submodule(parent), attribute, nn.Identity())
            return layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    raise ConfigError(f"torchvision:{name} has no last layer to replace; choose another classifier")
