"""One update of the weights by one batch: loss, gradient, optimiser, in the precision of the run.

A batch goes through the network in parts where the config or the memory asks for it; the update stays that of the whole
batch, but for batch norm, which sees a part at a time.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from portcullis_training.errors import FitError
from portcullis_training.fitting.distributed import Process
from portcullis_training.fitting.memory import is_out_of_memory, release
from portcullis_training.fitting.objective import Material, Objective, in_parts, objective
from portcullis_training.fitting.precision import FLOAT16, autocast
from portcullis_training.methods import Method

logger = logging.getLogger(__name__)


class TrainingStep:
    """Updates a classifier; its state is the optimiser's and, for float16, the scale of the loss."""

    def __init__(
        self,
        method: Method,
        forward: nn.Module,
        optimizer: torch.optim.Optimizer,
        process: Process,
        precision: str,
        deviations: Tensor | float = 1.0,
    ) -> None:
        """`forward` is the classifier as the pass sees it: compiled, distributed, or as it is."""
        self._deviations = deviations
        self._method, self._forward, self._process, self._precision = method, forward, process, precision
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler(process.device.type, enabled=precision == FLOAT16)
        self.num_parts = 1

    def take(self, material: Material, learning_rate: float) -> Objective:
        """Update the weights; where memory runs out, again in twice as many parts."""
        for group in self.optimizer.param_groups:
            group["lr"] = group.get("rate", 1.0) * learning_rate  # older checkpoints have no rates
        while True:
            try:
                return self._take(material)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self._refuse_what_cannot_shrink(material)
            self.optimizer.zero_grad(set_to_none=True)
            release()  # here, where the error that held the tensors is gone
            self.num_parts = min(2 * self.num_parts, len(material.labels))
            logger.warning("out of memory: going on with each batch in %d parts", self.num_parts)

    def _take(self, material: Material) -> Objective:
        self.optimizer.zero_grad(set_to_none=True)
        results = []
        parts = list(in_parts(material, self.num_parts)) if self.num_parts > 1 else [material]
        for number, part in enumerate(parts, start=1):
            with self._synchronised(number == len(parts)):
                with autocast(self._precision, self._process.device):
                    result = objective(self._method, self._forward, part, self._deviations)
                self.scaler.scale(result.loss).backward()
                results.append(result._replace(loss=result.loss.detach()))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        loss = torch.stack([result.loss for result in results]).sum()
        num_correct = torch.stack([result.num_correct for result in results]).sum()
        return Objective(loss, num_correct, sum(result.num_counted for result in results))

    def _synchronised(self, is_last: bool) -> AbstractContextManager[object]:
        """Several processes average their gradients once a step, with the last part."""
        if is_last or not isinstance(self._forward, DistributedDataParallel):
            return nullcontext()
        return self._forward.no_sync()

    def _refuse_what_cannot_shrink(self, material: Material) -> None:
        if self._process.count > 1:  # the others are waiting for this one in the middle of a step
            raise FitError(
                "out of memory; several processes cannot shrink by themselves: give --accumulation 2 or more"
            )
        if self.num_parts >= len(material.labels):
            raise FitError(
                "out of memory, though only one image was in it at a time; use smaller images or a smaller backbone"
            )
