"""SoftMax: the linear layer and cross-entropy that everything else is measured against."""

from torch import Tensor, nn
from torch.nn import functional

from portcullis_training.methods import Method


class SoftMax(Method):
    """−log softmax(Wf + b)_y, and Energy as the score: its logits mean more than their softmax, the paper's MPS."""

    name = "softmax"
    title = "SoftMax"
    score_name = "energy"

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        return nn.Linear(num_features, num_classes)

    def training_log_probabilities(self, logits: Tensor) -> Tensor:
        """In one step, as is usual for cross-entropy."""
        return functional.log_softmax(logits, dim=1)


METHOD = SoftMax()
