"""Distances from features to learned class prototypes, the part that DisMax and IsoMax+ have in common."""

import torch
from torch import Tensor, nn

SHORTEST = 1e-12  # a feature vector of zeros has no direction, but must not divide by zero
# Rounding of f̂·p̂ in float32 is of this size, so nothing real lies below; it bounds the gradient of the root at 0.
EPSILON = 1e-7


class Prototypes(nn.Module):
    """One prototype a class and one distance scale, all learned under the same rules as every other weight."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.randn(num_classes, num_features))
        self.distance_scale = nn.Parameter(torch.ones(()))

    @torch.no_grad()
    def start_at(self, class_means: Tensor) -> None:
        """Put every prototype where its class is."""
        self.prototypes.copy_(class_means)

    def forward(self, features: Tensor) -> Tensor:
        """|s| · ‖f̂ − p̂_j‖ / √2 = |s| · sqrt(1 − f̂·p̂_j): one matrix product."""
        # Half precision would lose the small distances, which are the ones that matter.
        with torch.autocast(features.device.type, enabled=False):
            cosines = directions(features.to(self.prototypes.dtype)) @ directions(self.prototypes).T  # (B, C)
            return self.distance_scale.abs() * (1 - cosines).clamp(min=EPSILON).sqrt()


def directions(vectors: Tensor) -> Tensor:
    """v / ‖v‖ by broadcasting alone, which exports to fewer operators than torch's own `normalize`."""
    return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=SHORTEST)
