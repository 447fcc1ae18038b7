"""IsoMax (Macêdo et al. 2019, arXiv 1908.05569): distances to prototypes, neither squared nor normalised."""

import torch
from torch import Tensor, nn

from portcullis_training.methods import Method

SHORTEST_SQUARED = 1e-12  # bounds the gradient of the root where features lie on a prototype


class IsoMaxHead(nn.Module):
    """Minus the distances to the prototypes, which all start at the origin."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.zeros(num_classes, num_features))

    def forward(self, features: Tensor) -> Tensor:
        """L_j = −‖f − p_j‖. The differences are written out: ‖f‖² − 2 f·p + ‖p‖² would cancel where they are small."""
        with torch.autocast(features.device.type, enabled=False):
            differences = features.to(self.prototypes.dtype)[:, None] - self.prototypes  # (B, C, d)
            return -(differences * differences).sum(dim=2).clamp(min=SHORTEST_SQUARED).sqrt()


class IsoMax(Method):
    """−log softmax(10 · L)_y, and negative entropy (ES) as the score."""

    name = "isomax"
    title = "IsoMax"
    score_name = "negative_entropy"
    entropic_scale = 10.0
    in_two_steps = True
    frozen_learning_rate = 0.1  # prototypes of length √d turn by this much of a coordinate a step

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        return IsoMaxHead(num_features, num_classes)

    @torch.no_grad()
    def start_head(self, head: nn.Module, class_means: Tensor) -> None:
        assert isinstance(head, IsoMaxHead)
        head.prototypes.copy_(class_means)


METHOD = IsoMax()
