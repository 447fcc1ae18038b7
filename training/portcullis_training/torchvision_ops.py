"""Make torchvision importable where its compiled operators cannot be loaded.

torchvision's wheel from PyPI is built for CUDA. Beside a CPU build of torch its extension does not load, and its
own import then stops at `torchvision::nms`, whose shape rule it registers whether or not the operator exists. The
classifiers and data sets used here need no compiled operator, so the missing schemas (not the operators) are
declared, only where they are missing, and the import is tried again. Import this module before torchvision.
"""

from __future__ import annotations

import importlib
import sys

import torch

SCHEMAS = ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
           "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # fmt: skip

_library: torch.library.Library | None = None  # a Library undoes its definitions when it is collected


def ensure_torchvision() -> None:
    """Import torchvision, declaring the schemas it trips over if its extension did not load."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        _declare_missing_schemas()
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]  # half imported
        importlib.import_module("torchvision")


def _declare_missing_schemas() -> None:
    global _library
    _library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        _library.define(schema)


ensure_torchvision()
