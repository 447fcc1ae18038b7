"""What happens when memory runs out: fewer images at once, and a line that says so."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

_WORDS = ("out of memory", "can't allocate memory", "not enough memory")  # CUDA and MPS, CPU on Linux, CPU on Windows


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the machine, has no room for a tensor; torch has a type of error for CUDA alone."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _WORDS)


def release() -> None:
    """Give back what a failed attempt holds."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Portions:
    """How many images go through a network at once: fewer from the moment that memory runs out."""

    def __init__(self, num_images: int) -> None:
        self.num_images = num_images

    def run(self, function: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """The function of all images, computed in as many portions as fit; outputs one after the other."""
        while True:
            try:
                return torch.cat([function(portion) for portion in images.split(self.num_images)])
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or self.num_images == 1:
                    raise
            release()  # here, where the error that held the tensors is gone
            self.num_images = -(-min(self.num_images, len(images)) // 2)
            logger.warning("out of memory: going on with %d images at once", self.num_images)
