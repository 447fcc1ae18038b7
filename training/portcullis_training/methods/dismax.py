"""DisMax (Macêdo, Zanchettin, Ludermir 2022, arXiv 2205.05874). With the fractional regulariser it is DisMax†."""

from torch import Tensor, nn

from portcullis_training.methods import Method
from portcullis_training.methods.formulas.prototypes import Prototypes


class DisMaxHead(nn.Module):
    """Logits+ from features."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.distances = Prototypes(num_features, num_classes)

    def forward(self, features: Tensor) -> Tensor:
        """Logits+: L_j = −(D_j + mean_n D_n). The mean cancels in every softmax; it matters in the score."""
        distances: Tensor = self.distances(features)  # (B, C)
        return -(distances + distances.mean(dim=1, keepdim=True))


class DisMax(Method):
    """−log softmax(10 · L)_y, and MMLES as the score."""

    name = "dismax"
    title = "DisMax"
    score_name = "mmles"
    paper_scores = ("max_probability", "mmles")
    entropic_scale = 10.0
    in_two_steps = True
    frozen_learning_rate = 0.1  # prototypes of length √d turn by this much of a coordinate a step

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        return DisMaxHead(num_features, num_classes)

    def start_head(self, head: nn.Module, class_means: Tensor) -> None:
        assert isinstance(head, DisMaxHead)
        head.distances.start_at(class_means)


METHOD = DisMax()
