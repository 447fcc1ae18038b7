"""What a graph answers. Knows no onnxruntime, so that whoever only reads answers need not load it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Outputs:
    """What the graph answers for a batch."""

    probabilities: NDArray[np.float32]  # (N, C)
    scores: NDArray[np.float32]  # (N,)
    parts: NDArray[np.float32]  # (N, K), columns as `manifest.part_names`
