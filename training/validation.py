"""How many validation images a classifier answers rightly while it is being trained; for the eye only."""

from __future__ import annotations

import torch
from torch import nn

from training import data

BATCH_SIZE = 500


@torch.inference_mode()
def accuracy_of(classifier: nn.Module, images: data.ImageSet, device: torch.device, num_workers: int) -> float:
    """Share of images whose largest logit is that of their label."""
    classifier.eval()
    num_correct = 0
    for batch, labels in data.in_order(images, BATCH_SIZE, num_workers):
        logits = classifier(data.to_float(batch.to(device)))
        num_correct += int((logits.argmax(dim=1).cpu() == labels).sum())
    return num_correct / len(images)
