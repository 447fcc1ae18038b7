"""Any torchvision classifier by name, with its last layer taken off: the method's head goes there."""

from __future__ import annotations

import difflib
from typing import Any

from torch import nn

from portcullis_training.backbones.features import Backbone
from portcullis_training.backbones.weights import DOWNLOAD, Expectation, Interpolation, State, read_state
from portcullis_training.errors import ConfigError

WITH_AUXILIARY = ("googlenet", "inception_v3")


def build(name: str, pretrained_weights: str | None) -> Backbone:
    """`torchvision:NAME`, fresh, with weights from a file or a package, or with torchvision's own download."""
    models = _models(name)
    # Explicit initialisation saves these two from a warning and minutes of sampling.
    options: dict[str, Any] = {"init_weights": True, "aux_logits": True} if name in WITH_AUXILIARY else {}
    network: nn.Module = models.get_model(name, weights=None, **options)
    if pretrained_weights is not None:
        try:
            network.load_state_dict(_state(name, pretrained_weights))
        except (RuntimeError, TypeError) as error:
            raise ConfigError(
                f"{pretrained_weights} does not hold the weights of torchvision:{name}: {error}"
            ) from None
    if name in WITH_AUXILIARY:
        _remove_auxiliary(network)
    return Backbone(network, nn.Flatten(), _remove_last_layer(network, name))


def expectation(name: str) -> Expectation:
    """What the default weights of a classifier expect of an image."""
    wanted = _models(name).get_model_weights(name)["DEFAULT"].transforms()
    (size,), (resized,) = wanted.crop_size, wanted.resize_size
    interpolation: Interpolation = "bicubic" if wanted.interpolation.value == "bicubic" else "bilinear"
    return Expectation(size, max(size, resized), interpolation, tuple(wanted.mean), tuple(wanted.std))


def _state(name: str, source: str) -> State:
    if source != DOWNLOAD:
        return read_state(source)
    try:
        state: State = _models(name).get_model_weights(name)["DEFAULT"].get_state_dict(progress=True)
    except OSError as error:  # URLError is one
        raise ConfigError(f"could not download the weights of torchvision:{name}: {error}") from None
    return state


def _models(name: str) -> Any:
    """The module of torchvision's classifiers, if this is one of them."""
    from portcullis_training import torchvision_ops  # noqa: F401  before torchvision
    from torchvision import models  # isort: skip

    known = models.list_models(module=models)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean torchvision:{nearest[0]}?" if nearest else ""
        raise ConfigError(f"torchvision has no classifier {name!r}{hint}")
    return models


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
