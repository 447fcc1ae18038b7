"""How many validation images a classifier answers rightly while it is being trained; for the eye only."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from portcullis_training import data
from portcullis_training.fitting.memory import Portions

MAX_VALIDATION_BATCH = 500


@torch.inference_mode()
def accuracy_of(
    classifier: nn.Module, images: data.ImageSet, device: torch.device, portions: Portions, num_workers: int
) -> float:
    """Share of images whose largest logit is that of their label."""
    classifier.eval()

    def logits_of(batch: Tensor) -> Tensor:
        logits: Tensor = classifier(data.to_float(batch.to(device)))
        return logits

    num_correct = 0
    for batch, labels in data.in_order(images, portions.num_images, num_workers):
        num_correct += int((portions.run(logits_of, batch).argmax(dim=1).cpu() == labels).sum())
    return num_correct / len(images)
