"""Several processes under torchrun: who this one is, on which device, and what all of them agree on."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from portcullis_training.config import RunConfig
from portcullis_training.errors import ConfigError
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.mixing.fractional import NUM_PATCHES

NUM_CONTEXT = NUM_PATCHES - 1
"""Images before its own that a process needs, to make of its own what one process would make of them."""


@dataclass(frozen=True)
class Share:
    """A process's part of every batch, by positions in the batch."""

    positions: NDArray[np.int64]
    num_context: int = 0
    """How many of them, before the second half, are another process's and only patches of compound images here."""


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

    def share(self, batch_size: int, *, is_fractional: bool = False) -> Share:
        """This process's part of every batch; with the regulariser, of both of its halves."""
        part = batch_size // self.count
        if not is_fractional or self.count == 1:
            return Share(np.arange(self.rank * part, (self.rank + 1) * part))
        half, part = batch_size // 2, part // 2
        own = np.arange(self.rank * part, (self.rank + 1) * part)
        before = np.arange(own[0] - NUM_CONTEXT, own[0]) % half  # circular, as in one process
        return Share(np.concatenate([own, half + before, half + own]), NUM_CONTEXT)

    def batch_size(self, config: RunConfig, num_images: int) -> int:
        """Images in a step of all processes: as the config says, or what there is, in equal parts."""
        unit = self.count * (2 if config.is_fractional and self.count > 1 else 1)
        if config.batch_size % unit:
            halves = " of both halves" if unit > self.count else ""
            raise ConfigError(
                f"batch_size {config.batch_size} cannot be shared equally{halves} by {self.count} processes; "
                f"expected a multiple of {unit}"
            )
        if num_images < unit:
            raise ConfigError(f"{num_images} training images cannot be shared by {self.count} processes")
        return min(config.batch_size, num_images // unit * unit)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count == 1:
            return values
        summed = values.clone()
        distributed.all_reduce(summed)
        return summed

    def agree(self, network: nn.Module) -> None:
        """Give all processes the buffers of the main one, which are saved: after a step each has batch-norm statistics
        of its own images."""
        for buffer in network.buffers() if self.count > 1 else ():
            distributed.broadcast(buffer, 0)

    def gather(self, value: Tensor) -> list[Tensor]:
        """The value of every process, by rank."""
        if self.count == 1:
            return [value]
        gathered: list[Tensor | None] = [None] * self.count
        distributed.all_gather_object(gathered, value)
        return [item for item in gathered if item is not None]

    def generator_state(self) -> Tensor:
        """The state of the global generator of this process's device."""
        if self.device.type == "cuda":
            return torch.cuda.get_rng_state(self.device)
        return torch.mps.get_rng_state() if self.device.type == "mps" else torch.get_rng_state()

    def restore_generator(self, states: list[Tensor]) -> None:
        """Go on with this process's state out of those of all."""
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(states[self.rank], self.device)
        elif self.device.type == "mps":
            torch.mps.set_rng_state(states[self.rank])
        else:
            torch.set_rng_state(states[self.rank])

    def place(self, classifier: Classifier, *, has_penalty: bool = False) -> Classifier:
        """The classifier on this device; on several GPUs with batch-norm statistics over the whole batch.

        `has_penalty`: gradients of gradients are taken, which torch's synchronised batch norm does not have.
        """
        classifier.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.count == 1 or has_penalty or self.device.type != "cuda":  # torch has synchronised ones for GPUs only
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
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Process(rank, count, device)
    finally:
        # A parallel model in a reference cycle keeps the group's threads alive into the interpreter's end, where one
        # that lets go of a tensor aborts the process.
        gc.collect()
        distributed.destroy_process_group()


def choose_device(wanted: str, local_rank: int = 0) -> torch.device:
    """The device asked for; auto takes a GPU where there is one, and one that is missing is an error."""
    kind, _, number = wanted.partition(":")
    if wanted == "auto":
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    elif kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device: {wanted} was asked for, but torch finds no GPU here; use --device cpu or auto")
    elif kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device: mps was asked for, but this is no Mac with a GPU that torch can use")
    if kind != "cuda":
        return torch.device(kind)
    index = int(number) if number else local_rank
    if index >= torch.cuda.device_count():
        raise ConfigError(f"device: expected cuda:0 to cuda:{torch.cuda.device_count() - 1}, got cuda:{index}")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device
