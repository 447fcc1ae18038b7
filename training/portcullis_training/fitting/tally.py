"""Running sums over an epoch, kept on the device: reading them every step would stall a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from portcullis_training.fitting.objective import Objective

LOSS, CORRECT, COUNTED, STEPS, IMAGES = range(5)  # places in the sums


class Tally:
    """What one process has seen of an epoch; sums of several processes add up."""

    def __init__(self, device: torch.device) -> None:
        exact = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64
        self.sums = torch.zeros(5, dtype=exact, device=device)

    def add(self, result: Objective, num_images: int) -> None:
        """Count a step."""
        self.sums[LOSS] += result.loss
        self.sums[CORRECT] += result.num_correct
        self.sums[COUNTED:] += torch.tensor([result.num_counted, 1, num_images], device=self.sums.device)


def mean_loss(sums: Tensor) -> float:
    """Of a step."""
    return float(sums[LOSS] / sums[STEPS])


def accuracy(sums: Tensor) -> float:
    """Share of the whole images answered rightly."""
    return float(sums[CORRECT] / sums[COUNTED].clamp(min=1))


def num_images(sums: Tensor) -> float:
    """How many images were trained on."""
    return float(sums[IMAGES])
