"""How a batch gets into a graph and its answers out: one session for any size, or one a size with memory of its own.

A provider that plans anew for every size is given few of them: a batch is rounded up to a bucket (buckets.py), and what
stands in the rows beyond it is computed and thrown away. A bucket has two sets of memory, so that the next batch can be
copied together while one runs; they are bound to the session once and used again and again.
"""

import contextlib
import ctypes
import logging
import mmap
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.buckets import bucket_of

logger = logging.getLogger(__name__)

Images = NDArray[np.uint8]
Fill = Callable[[Images], None]
"""Writes the images of a batch into the rows that it is given."""
NUM_IN_FLIGHT = 2
CUDA_RUNTIME = "libcudart.so.13"


@dataclass(frozen=True)
class Signature:
    """What goes into a graph and comes out, but for the number of images."""

    input_name: str
    image_shape: tuple[int, int, int]
    outputs: dict[str, tuple[int, ...]]


class Batches(Protocol):
    """Runs batches."""

    sizes: tuple[int, ...]
    """Those that are warmed up before the first answer."""

    def run(self, images: Images) -> list[NDArray[np.float32]]: ...

    def run_filled(self, num_images: int, fill: Fill) -> list[NDArray[np.float32]]: ...

    def leave_out(self, size: int) -> None:
        """Do without this size and larger ones."""


class AnySize:
    """One session that takes batches as they come."""

    sizes: tuple[int, ...] = ()

    def __init__(self, session: Any, signature: Signature) -> None:
        self._session, self._signature = session, signature
        self._names = list(signature.outputs)

    def run(self, images: Images) -> list[NDArray[np.float32]]:
        return list(self._session.run(self._names, {self._signature.input_name: images}))

    def run_filled(self, num_images: int, fill: Fill) -> list[NDArray[np.float32]]:
        images = np.empty((num_images, *self._signature.image_shape), np.uint8)
        fill(images)
        return self.run(images)

    def leave_out(self, size: int) -> None:
        """It has no sizes of its own."""


class Buckets:
    """A session a size; `make_memory` makes the memory of one batch for one of them."""

    def __init__(self, sessions: dict[int, Any], make_memory: "MakeMemory", num_in_flight: int = NUM_IN_FLIGHT) -> None:
        self.sizes = tuple(sorted(sessions))
        self._free: dict[int, SimpleQueue[Memory]] = {size: SimpleQueue() for size in sessions}
        for size, session in sessions.items():
            for _ in range(num_in_flight):
                self._free[size].put(make_memory(session, size))

    def run(self, images: Images) -> list[NDArray[np.float32]]:
        """As many runs as it takes."""
        parts = [images[start : start + self.sizes[-1]] for start in range(0, len(images), self.sizes[-1])]
        answers = [self.run_filled(len(part), _copy_of(part)) for part in parts]
        return [np.concatenate(values) for values in zip(*answers, strict=True)]

    def run_filled(self, num_images: int, fill: Fill) -> list[NDArray[np.float32]]:
        with self._memory_of(bucket_of(num_images, self.sizes)) as memory:
            fill(memory.images[:num_images])
            return [values[:num_images] for values in memory.run()]

    def leave_out(self, size: int) -> None:
        self.sizes = tuple(each for each in self.sizes if each < size)
        self._free = {each: self._free[each] for each in self.sizes}

    @contextlib.contextmanager
    def _memory_of(self, size: int) -> "Iterator[Memory]":
        memory = self._free[size].get()
        try:
            yield memory
        finally:
            self._free[size].put(memory)


def _copy_of(images: Images) -> Fill:
    return lambda rows: np.copyto(rows, images)


class Memory(Protocol):
    """The images of one batch, and what a session answers to them."""

    images: Images

    def run(self) -> Sequence[NDArray[np.float32]]: ...


MakeMemory = Callable[[Any, int], Memory]


class PlainMemory:
    """For a session that takes and gives arrays."""

    def __init__(self, session: Any, size: int, signature: Signature) -> None:
        self.images = np.zeros((size, *signature.image_shape), np.uint8)
        self._session, self._names, self._input = session, list(signature.outputs), signature.input_name

    def run(self) -> Sequence[NDArray[np.float32]]:
        return list(self._session.run(self._names, {self._input: self.images}))


class BoundMemory:
    """Bound to a session for good: page-locked here, and at fixed addresses on the device, as CUDA graphs need."""

    def __init__(
        self, session: Any, size: int, signature: Signature, make_value: Callable[[Sequence[int], Any], Any]
    ) -> None:
        self.images = page_locked((size, *signature.image_shape))
        self._session, self._binding = session, session.io_binding()
        self._input = make_value(self.images.shape, np.uint8)
        self._outputs = [make_value((size, *shape), np.float32) for shape in signature.outputs.values()]
        self._binding.bind_ortvalue_input(signature.input_name, self._input)
        for name, value in zip(signature.outputs, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, value)

    def run(self) -> Sequence[NDArray[np.float32]]:
        self._input.update_inplace(self.images)
        self._session.run_with_iobinding(self._binding)
        return [np.array(value.numpy()) for value in self._outputs]


_registering = threading.Lock()


def page_locked(shape: tuple[int, ...]) -> Images:
    """Zeros that a device can read without the processor's help, where CUDA is; plain memory elsewhere."""
    count = int(np.prod(shape))
    images = np.frombuffer(mmap.mmap(-1, count), np.uint8).reshape(shape)
    try:
        runtime = ctypes.CDLL(CUDA_RUNTIME)
    except OSError:
        return images
    with _registering:
        status = runtime.cudaHostRegister(ctypes.c_void_p(images.ctypes.data), ctypes.c_size_t(count), ctypes.c_uint(0))
    if status:
        logger.warning("memory for batches of %d cannot be locked (CUDA error %d); copies are slower", shape[0], status)
    return images
