"""SoftMax: the linear layer and cross-entropy that everything else is measured against."""

from torch import nn

from portcullis_training.methods import Method


class SoftMax(Method):
    """−log softmax(Wf + b)_y, and Energy as the score: its logits mean more than their softmax, the paper's MPS."""

    name = "softmax"
    title = "SoftMax"
    score_name = "energy"
    paper_scores = ("max_probability", "max_probability")

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        return nn.Linear(num_features, num_classes)


METHOD = SoftMax()
