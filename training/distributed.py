"""Several processes under torchrun: who this one is, on which device, and what all of them agree on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from training.classifier import Classifier
from training.errors import ConfigError
from training.recipes import RunConfig


@dataclass(frozen=True)
class Process:
    """One of `count` training processes, on its device."""

    rank: int
    count: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """The one that reports and writes."""
        return self.rank == 0

    def share(self, batch_size: int) -> tuple[int, int]:
        """Start and stop of this process's part of a batch."""
        part = batch_size // self.count
        return self.rank * part, (self.rank + 1) * part

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count == 1:
            return values
        summed = values.clone()
        distributed.all_reduce(summed)
        return summed

    def gather(self, value: Tensor) -> list[Tensor]:
        """The value of every process, by rank."""
        if self.count == 1:
            return [value]
        gathered: list[Tensor | None] = [None] * self.count
        distributed.all_gather_object(gathered, value)
        return [item for item in gathered if item is not None]

    def generator_state(self) -> Tensor:
        """The state of the global generator of this process's device."""
        return torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else torch.get_rng_state()

    def restore_generator(self, states: list[Tensor]) -> None:
        """Go on with this process's state out of those of all."""
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(states[self.rank], self.device)
        else:
            torch.set_rng_state(states[self.rank])

    def place(self, classifier: Classifier) -> Classifier:
        """The classifier on this device; on several GPUs with batch-norm statistics over the whole batch."""
        classifier.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.count == 1 or self.device.type != "cuda":  # torch has synchronised batch norm for GPUs only
            return classifier
        synchronised: Classifier = nn.SyncBatchNorm.convert_sync_batchnorm(classifier)
        return synchronised

    def parallel(self, classifier: nn.Module) -> nn.Module:
        """The classifier as the forward pass sees it: gradients averaged over all processes."""
        return classifier if self.count == 1 else DistributedDataParallel(classifier)


@contextmanager
def training_process(config: RunConfig) -> Iterator[Process]:
    """This process, joined with the others that torchrun started, if it did."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    device = choose_device(config.device, local_rank)
    if count == 1:
        yield Process(0, 1, device)
        return
    if config.batch_size % count:
        raise ConfigError(f"batch_size {config.batch_size} cannot be shared equally by {count} processes")
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Process(rank, count, device)
    finally:
        distributed.destroy_process_group()


def choose_device(wanted: str, local_rank: int = 0) -> torch.device:
    """The device asked for; auto takes a GPU where there is one, and a GPU that is missing is an error."""
    has_cuda = torch.cuda.is_available()
    if wanted == "cuda" and not has_cuda:
        raise ConfigError("device: cuda was asked for, but torch finds no GPU here; use --device cpu or auto")
    if wanted == "cpu" or not has_cuda:
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device
