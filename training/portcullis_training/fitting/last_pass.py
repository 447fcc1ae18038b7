"""What a method is given after the last step: the network that ships, and images as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from portcullis_training import data
from portcullis_training.methods import LastPass

if TYPE_CHECKING:
    from portcullis_training.fitting.fit import Fitting

MAX_BATCH = 250


def last_pass(fitting: Fitting) -> LastPass:
    """For this process: its share of the training images, and all validation images."""
    network = fitting.shipped
    network.eval()
    process, train = fitting.process, fitting.splits.train
    process.agree(network)
    share = train.subset(np.arange(process.rank, len(train), process.count))

    def batches(images: data.ImageSet) -> Iterator[tuple[Tensor, Tensor]]:
        size = min(MAX_BATCH, len(fitting.training_batches.share.positions))
        for pixels, labels in data.in_order(images, size, fitting.config.num_workers):
            yield data.to_float(pixels.to(process.device)), torch.as_tensor(labels).to(process.device)

    return LastPass(network, lambda: batches(share), lambda: batches(fitting.splits.validation), process.total)
