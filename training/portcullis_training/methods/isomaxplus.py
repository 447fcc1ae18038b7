"""IsoMax+ (Macêdo, Ludermir 2021, arXiv 2105.14399), the twin that DisMax grew from."""

import math

from torch import Tensor, nn

from portcullis_training.methods import Method
from portcullis_training.methods.formulas.prototypes import Prototypes


class IsoMaxPlusHead(nn.Module):
    """Minus the isometric distances to the prototypes."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.distances = Prototypes(num_features, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """L_j = −|s| · ‖f̂ − p̂_j‖, without DisMax's division by √2."""
        distances: Tensor = self.distances(features)  # (B, C)
        return -math.sqrt(2) * distances


class IsoMaxPlus(Method):
    """−log softmax(10 · L)_y, and the minimum distance (MDS) as the score."""

    name = "isomaxplus"
    title = "IsoMax+"
    score_name = "max_logit"
    entropic_scale = 10.0
    in_two_steps = True
    frozen_learning_rate = 0.1  # prototypes of length √d turn by this much of a coordinate a step

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        return IsoMaxPlusHead(num_features, num_classes)

    def start_head(self, head: nn.Module, class_means: Tensor) -> None:
        assert isinstance(head, IsoMaxPlusHead)
        head.distances.start_at(class_means)


METHOD = IsoMaxPlus()
