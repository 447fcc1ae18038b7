"""Runs, checks and warms the graph of a bundle on one provider; `start` finds the first provider that works."""

import contextlib
import ctypes
import functools
import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle import self_test, shift
from portcullis.bundle.batches import (
    NUM_IN_FLIGHT,
    AnySize,
    Batches,
    BoundMemory,
    Buckets,
    Fill,
    PlainMemory,
    Signature,
)
from portcullis.bundle.device_faults import engine_error
from portcullis.bundle.files import Bundle
from portcullis.bundle.gate import DEFAULT_OPERATING_POINT
from portcullis.bundle.outputs import Outputs
from portcullis.bundle.providers import CPU, EngineOptions, batch_sizes, behind, order
from portcullis.bundle.session import device_value, has_gpu_build, open_session, reason_of
from portcullis.bundle.shift import Shifts
from portcullis.bundle.simulated import is_simulated
from portcullis.errors import BundleError, EngineError, OutOfDeviceMemory

logger = logging.getLogger(__name__)

INPUT = "images"
OUTPUTS = {1: ("probabilities", "score"), 2: ("probabilities", "score", "parts")}
"""By format version."""


def start(bundle: Bundle, options: EngineOptions = EngineOptions()) -> "Engine":  # noqa: B008 (frozen)
    """An engine on the first provider, in the order asked for, that opens the graph and answers as the export did."""
    refusals: list[str] = []
    *preferred, last = order(options, has_gpu_build())
    for name in preferred:
        try:
            return _tested(bundle, options, name, refusals)
        except (EngineError, BundleError) as error:
            refusals.append(reason_of(error))
            logger.warning("%s: %s", bundle.label, refusals[-1])
    return _tested(bundle, options, last, refusals)


def _tested(bundle: Bundle, options: EngineOptions, provider: str, refusals: list[str]) -> "Engine":
    engine = Engine(bundle, options, provider)
    engine.self_test()
    engine.warm_up()
    engine.refusals += tuple(refusals)
    logger.info(
        "%s runs on %s: scores differ from those of the export by up to %.2g, so %s rejects up to %.2f %% more or less",
        bundle.label,
        provider,
        engine.shifts.score,
        DEFAULT_OPERATING_POINT,
        100 * shift.default_moved_share(engine.shifts.score, bundle.manifest.calibration),
    )
    return engine


class Engine:
    """A loaded graph: uint8 images in, probabilities, scores and their parts out."""

    def __init__(self, bundle: Bundle, options: EngineOptions = EngineOptions(), provider: str = CPU) -> None:  # noqa: B008
        self._manifest = bundle.manifest
        self._label = bundle.label
        self.asked = options.asked or options.providers
        self.provider = provider
        self.providers = behind(provider)
        self.refusals = options.refusals
        """What was preferred and did not start, with the reason."""
        self.shifts = Shifts()
        """By how much answers of the self-test differed here from those of the export, at the most."""
        self._batches: Batches | None = self._open(bundle, options)

    def run(self, images: NDArray[np.uint8]) -> Outputs:
        """Run a batch [N, H, W, 3]; whatever goes wrong inside is an EngineError."""
        assert self._batches is not None, "the engine is closed"
        try:
            found = self._batches.run(images)
        except Exception as error:  # onnxruntime raises types of its own that share no parent
            raise engine_error(error, len(images)) from error
        return self._checked_shapes(found, len(images))

    def run_filled(self, num_images: int, fill: Fill) -> Outputs:
        """The same for images that `fill` writes to where the graph reads them."""
        assert self._batches is not None, "the engine is closed"
        try:
            found = self._batches.run_filled(num_images, fill)
        except Exception as error:
            raise engine_error(error, num_images) from error
        return self._checked_shapes(found, num_images)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Sizes that batches are rounded up to; none where they are run as they come."""
        return self._batches.sizes if self._batches is not None else ()

    def close(self) -> None:
        """Free the graph's memory now, whoever still holds this object."""
        self._batches = None
        _return_memory()

    def warm_up(self) -> None:
        """Let every batch size have been run once, since the first takes far longer than those after it. Sizes that
        the device has no memory for are left out."""
        for size in self.batch_sizes:
            try:
                self.run_filled(size, lambda rows: rows.fill(0))
            except OutOfDeviceMemory as error:
                if size == self.batch_sizes[0]:
                    raise
                assert self._batches is not None
                self._batches.leave_out(size)
                logger.warning("%s: %s; larger batches than %d are not run", self._label, error, self.batch_sizes[-1])
                return

    def self_test(self) -> None:
        """Refuse a graph that does not answer here as it did when it was exported; warms it up on the way."""
        self.shifts = self_test.shifts_of(self.run, self._manifest, self._label)

    def _open(self, bundle: Bundle, options: EngineOptions) -> Batches:
        """One session, or one a batch size where the provider would plan anew for each."""
        session, sizes = open_session(bundle, self.provider, options), batch_sizes(self.provider, options.max_batch)
        signature = self._signature(session)
        if not sizes:
            return AnySize(session, signature)
        sessions = {size: open_session(bundle, self.provider, options) for size in sizes[:-1]} | {sizes[-1]: session}
        if is_simulated(self.provider):
            return Buckets(sessions, functools.partial(PlainMemory, signature=signature))
        bound = functools.partial(
            BoundMemory, signature=signature, make_value=functools.partial(device_value, device=self.provider)
        )
        # a CUDA graph is of one set of addresses: with it there is one a session
        return Buckets(sessions, bound, 1 if options.gpu_cuda_graphs else NUM_IN_FLIGHT)

    def _checked_shapes(self, found: list[NDArray[np.float32]], num_images: int) -> Outputs:
        probabilities, scores, *rest = found
        parts = rest[0] if rest else scores.reshape(-1, 1)
        shapes = {"probabilities": probabilities.shape, "score": scores.shape, "parts": parts.shape}
        for name, row in self._row_shapes().items():
            if shapes[name] != (num_images, *row):
                raise EngineError(f"expected {name} {(num_images, *row)}, got {shapes[name]}")
        return Outputs(probabilities, scores, parts)

    def _row_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"probabilities": (len(self._manifest.labels),), "score": (), "parts": (len(self._manifest.part_names),)}

    def _signature(self, session: Any) -> Signature:
        """What the graph takes and gives, or a BundleError where that is not the contract."""
        inputs = [(node.name, node.type) for node in session.get_inputs()]
        outputs = sorted((node.name, node.type) for node in session.get_outputs())
        if inputs != [(INPUT, "tensor(uint8)")]:
            raise BundleError(f"bundle {self._label}: expected graph input {INPUT} of uint8, got {inputs}")
        names = OUTPUTS[self._manifest.format_version]
        if self._manifest.part_names == (self._manifest.score_name,) and len(outputs) == len(OUTPUTS[1]):
            names = OUTPUTS[1]  # made for format 1 and calibrated anew: its score is its only part
        if outputs != sorted((name, "tensor(float)") for name in names):
            raise BundleError(f"bundle {self._label}: expected graph outputs {names} of float32, got {outputs}")
        image, shape = self._manifest.image, session.get_inputs()[0].shape
        if shape[1:] != [image.height, image.width, 3] or isinstance(shape[0], int):
            raise BundleError(
                f"bundle {self._label}: expected images [N, {image.height}, {image.width}, 3] with N free, got {shape}"
            )
        rows = self._row_shapes()
        return Signature(INPUT, (image.height, image.width, 3), {name: rows[name] for name in names})


def _return_memory() -> None:
    """glibc keeps what is freed for later; an engine is large, and its successor has its own already."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
