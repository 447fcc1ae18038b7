"""GODIN with its preprocessing: the score of an image that was pushed a little towards a higher score."""

import torch
from torch import Tensor, nn

from portcullis_training.methods import LastPass, LooksTwice, Network
from portcullis_training.methods.formulas.answers import answer_of
from portcullis_training.methods.formulas.scores import largest
from portcullis_training.methods.godin import Godin, GodinHead

CANDIDATES = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
"""For ε, on images in [0, 1]."""


class PreprocessingHead(GodinHead):
    """GODIN's head, which remembers how far images are pushed."""

    epsilon: Tensor

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__(num_features, num_classes)
        self.register_buffer("epsilon", torch.zeros(()))


class GodinPreprocessing(Godin, LooksTwice):
    """max h of x + ε · sign(∇_x max h), ε of the highest mean score of validation images; no outside image is seen."""

    name = "godin_preprocessing"
    title = "GODIN, preprocessing"
    needs_whole_network = True
    export_refusal = (
        "its score needs the gradient of the network with respect to the image, and a graph of ONNX operators has no "
        "backward pass; export method godin, the same network and score without preprocessing"
    )

    def make_head(self, num_features: int, num_classes: int) -> nn.Module:
        return PreprocessingHead(num_features, num_classes)

    def perturbed(self, network: Network, images: Tensor) -> Tensor:
        """Images pushed by the ε that was found."""
        assert isinstance(network.head, PreprocessingHead)
        return images + network.head.epsilon * _uphill(network, images)

    def finish(self, last: LastPass) -> None:
        """Choose ε."""
        sums = torch.zeros(len(CANDIDATES), dtype=torch.float64)
        for images, _ in last.validation():
            signs = _uphill(last.network, images)
            with torch.no_grad():
                sums += torch.stack(
                    [_score(last.network, images + epsilon * signs).double().sum().cpu() for epsilon in CANDIDATES]
                )
        assert isinstance(last.network.head, PreprocessingHead)
        last.network.head.epsilon.fill_(CANDIDATES[int(sums.argmax())])


def _score(network: Network, images: Tensor) -> Tensor:
    return largest(answer_of(network.head, network.features(images).float()).beside)


def _uphill(network: Network, images: Tensor) -> Tensor:
    """The sign of the score's gradient, pixel by pixel."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = images.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(_score(network, leaf).sum(), leaf)
    return gradient.sign()


METHOD = GodinPreprocessing()
