"""Train a head alone, on features that are there already: seconds, where the whole network takes minutes.

AdamW without weight decay, a cosine from the method's own rate to 0. Prototypes start at the means of their classes; a
rate that is too small for them, more than anything else, is what made distance heads look worse than linear ones here.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from portcullis_training.fitting.batches import shown_order
from portcullis_training.methods import Method
from portcullis_training.methods.formulas.centring import CentredHead

BATCH_SIZE = 256
MIN_EPOCHS, MIN_STEPS = 40, 1000


def train_head(
    head: CentredHead, method: Method, features: Tensor, labels: Tensor, *, seed: int, class_balance: float = 0.0
) -> float:
    """Fit the centring and train the head on features (N, d); the mean loss of the last epoch."""
    torch.manual_seed(seed)  # of dropout
    head.train().fit(features)
    method.start_head(head.head, _class_means(head.centred(features), labels))
    optimizer = torch.optim.AdamW(head.parameters(), lr=method.frozen_learning_rate, weight_decay=0.0)
    num_epoch_steps = math.ceil(len(labels) / BATCH_SIZE)
    num_epochs = max(MIN_EPOCHS, math.ceil(MIN_STEPS / num_epoch_steps))
    losses = torch.zeros(num_epoch_steps)
    for step, batch in enumerate(_batches(labels, num_epochs, seed, class_balance)):
        for group in optimizer.param_groups:
            group["lr"] = method.frozen_learning_rate * _cosine(step / (num_epochs * num_epoch_steps))
        loss = method.loss(head(features[batch]), labels[batch])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses[step % num_epoch_steps] = loss.detach()
    head.eval()
    return float(losses.mean())


def _batches(labels: Tensor, num_epochs: int, seed: int, class_balance: float) -> list[Tensor]:
    """All batches of all epochs: the last of an epoch may be smaller."""
    names = labels.cpu().numpy()
    orders = [shown_order(names, class_balance, np.random.default_rng([seed, epoch, 3])) for epoch in range(num_epochs)]
    return [batch for order in orders for batch in torch.from_numpy(order).to(labels.device).split(BATCH_SIZE)]


def _class_means(features: Tensor, labels: Tensor) -> Tensor:
    """(C, d); every class has training images, as the splits see to."""
    num_classes = int(labels.max()) + 1
    sums = features.new_zeros(num_classes, features.shape[1]).index_add_(0, labels, features)
    return sums / torch.bincount(labels, minlength=num_classes)[:, None]


def _cosine(share: float) -> float:
    return (1 + math.cos(math.pi * share)) / 2
