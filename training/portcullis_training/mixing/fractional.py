"""The fractional regulariser's material: compound images of four patches and the shares of their classes."""

import torch
from torch import Tensor
from torch.nn import functional

NUM_PATCHES = 4


def compound_images(images: Tensor) -> Tensor:
    """Image i keeps its top-left quadrant; bottom-left, top-right and bottom-right come from i−1, i−2, i−3.

    Each quadrant stays in its place. Indices are circular, so fewer than four images wrap around; odd sizes split
    at the floor.
    """
    middle_row, middle_column = images.shape[2] // 2, images.shape[3] // 2
    compound = images.clone()  # (B, 3, H, W)
    compound[:, :, middle_row:, :middle_column] = images.roll(1, dims=0)[:, :, middle_row:, :middle_column]
    compound[:, :, :middle_row, middle_column:] = images.roll(2, dims=0)[:, :, :middle_row, middle_column:]
    compound[:, :, middle_row:, middle_column:] = images.roll(3, dims=0)[:, :, middle_row:, middle_column:]
    return compound


def compound_targets(labels: Tensor, num_classes: int) -> Tensor:
    """Q: a quarter for the class of each source image, adding up where classes repeat."""
    sources = torch.stack([labels.roll(shift, dims=0) for shift in range(NUM_PATCHES)])  # (4, B)
    return functional.one_hot(sources, num_classes).float().mean(dim=0)  # (B, C)


def divergence(targets: Tensor, log_probabilities: Tensor) -> Tensor:
    """Mean over the batch of KL(Q ‖ P), which is finite where Q is 0 (the paper prints KL(P ‖ Q), which is not)."""
    return functional.kl_div(log_probabilities, targets.to(log_probabilities.dtype), reduction="batchmean")
