"""Runs, checks and warms the graph of a bundle. The only user of onnxruntime."""

import contextlib
import ctypes
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

os.putenv("ORT_DISABLE_TELEMETRY", "1")  # read when onnxruntime loads: a server reports its usage to nobody

import onnxruntime

from service.bundle import MODEL_FILE, Bundle, ImageSpec
from service.devices import has_nvidia_driver
from service.errors import BundleError, EngineError

logger = logging.getLogger(__name__)

INPUT = "images"
OUTPUTS = ("probabilities", "score")
PROVIDERS = {  # short name to onnxruntime's, best first
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
SELF_TEST_TOLERANCE = 0.02  # GPUs compute with fewer bits than the machine that exported
_QUIET = 3  # onnxruntime's severity: errors only


@dataclass(frozen=True)
class EngineOptions:
    """Where and how the graph runs."""

    providers: tuple[str, ...] = ("auto",)
    """`auto`, or short names in order of preference: tensorrt, cuda, cpu."""
    allow_fallback: bool = False
    """Whether a provider that was asked for by name may be missing."""
    device_id: int = 0
    threads: int = 1
    tensorrt_cache: Path | None = None
    gpu_memory_limit_bytes: int | None = None


@dataclass(frozen=True)
class Outputs:
    """What the graph answers for a batch."""

    probabilities: NDArray[np.float32]  # (N, C)
    scores: NDArray[np.float32]  # (N,)


def choose_providers(asked: Sequence[str], usable: Sequence[str], allow_fallback: bool) -> tuple[str, ...]:
    """Short names of the providers to use, best first; the CPU always stands last, for what the others cannot run."""
    wanted = list(PROVIDERS) if list(asked) == ["auto"] else list(asked)
    unknown = [name for name in wanted if name not in PROVIDERS]
    if unknown or not wanted:
        raise EngineError(f"unknown provider {', '.join(unknown) or '(none)'}; there are: auto, {', '.join(PROVIDERS)}")
    missing = [name for name in wanted if name not in usable]
    if missing and list(asked) != ["auto"] and not allow_fallback:
        raise EngineError(
            f"provider {', '.join(missing)} was asked for, but only {', '.join(usable)} can be used here; "
            "allow fallback to go on without"
        )
    chosen = [name for name in wanted if name in usable]
    return tuple(dict.fromkeys([*chosen, "cpu"]))


def usable_providers() -> tuple[str, ...]:
    """Providers of this build of onnxruntime whose driver is on this machine, best first."""
    built_in = set(onnxruntime.get_available_providers())
    present = [name for name, full in PROVIDERS.items() if full in built_in]
    return tuple(name for name in present if name == "cpu" or has_nvidia_driver())


def self_test_images(spec: ImageSpec) -> NDArray[np.uint8]:
    """Four fixed images, the same on every machine: black, white, a gradient and hash noise."""
    height, width = spec.height, spec.width
    index = np.arange(height * width * 3, dtype=np.uint64).reshape(height, width, 3)
    black = np.zeros((height, width, 3), np.uint8)
    gradient = (index * 255 // max(1, index.size - 1)).astype(np.uint8)
    noise = ((index * np.uint64(2654435761) >> np.uint64(13)) % np.uint64(256)).astype(np.uint8)
    return np.stack([black, black + np.uint8(255), gradient, noise])


class Engine:
    """A loaded graph: uint8 images in, probabilities and scores out."""

    def __init__(self, bundle: Bundle, options: EngineOptions = EngineOptions()) -> None:  # noqa: B008 (frozen)
        self._manifest = bundle.manifest
        self._label = bundle.label
        self.asked = options.providers
        chosen = choose_providers(options.providers, usable_providers(), options.allow_fallback)
        self._session = self._open(bundle.read(MODEL_FILE), chosen, options)
        self.providers = self._in_use(chosen, options)
        self._check_signature()

    def run(self, images: NDArray[np.uint8]) -> Outputs:
        """Run a batch [N, H, W, 3]; whatever goes wrong inside is an EngineError."""
        try:
            probabilities, scores = self._session.run(OUTPUTS, {INPUT: images})
        except Exception as error:  # onnxruntime raises types of its own that share no parent
            raise EngineError(f"the engine failed on a batch of {len(images)}: {type(error).__name__}") from error
        expected = (len(images), len(self._manifest.labels))
        if probabilities.shape != expected or scores.shape != expected[:1]:
            raise EngineError(
                f"expected probabilities {expected} and score {expected[:1]}, got {probabilities.shape}, {scores.shape}"
            )
        return Outputs(probabilities, scores)

    def close(self) -> None:
        """Free the graph's memory now, whoever still holds this object."""
        self._session = None
        _return_memory()

    def self_test(self) -> None:
        """Refuse a graph that does not answer here as it did when it was exported; warms it up on the way."""
        images = self_test_images(self._manifest.image)
        whole = self._checked(images)
        alone = self._checked(images[:1])
        expected = self._manifest.self_test
        for name, got, want in (
            ("probabilities", whole.probabilities, np.asarray(expected.probabilities, np.float32)),
            ("scores", whole.scores, np.asarray(expected.scores, np.float32)),
            ("probabilities of one image", alone.probabilities, whole.probabilities[:1]),
        ):
            if got.shape != want.shape or not np.allclose(
                got, want, atol=SELF_TEST_TOLERANCE, rtol=SELF_TEST_TOLERANCE
            ):
                raise BundleError(f"bundle {self._label}: self-test {name} differ from those of the export")

    def _checked(self, images: NDArray[np.uint8]) -> Outputs:
        outputs = self.run(images)
        if not (np.isfinite(outputs.probabilities).all() and np.isfinite(outputs.scores).all()):
            raise BundleError(f"bundle {self._label}: the self-test gave NaN or infinity")
        if not np.allclose(outputs.probabilities.sum(axis=1), 1, atol=1e-3):
            raise BundleError(f"bundle {self._label}: probabilities do not add up to 1")
        return outputs

    def _open(self, graph: bytes, chosen: tuple[str, ...], options: EngineOptions) -> "onnxruntime.InferenceSession":
        session_options = onnxruntime.SessionOptions()
        session_options.intra_op_num_threads = options.threads
        session_options.inter_op_num_threads = 1
        session_options.log_severity_level = _QUIET
        session_options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # leave idle cores to others
        session_options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        try:
            session = onnxruntime.InferenceSession(
                graph, session_options, providers=[provider_options(name, options) for name in chosen]
            )
        except Exception as error:
            raise BundleError(f"bundle {self._label}: onnxruntime refuses the graph: {type(error).__name__}") from error
        session._model_bytes = None  # it would keep the file beside the weights, for a fallback that is not used here
        return session

    def _in_use(self, chosen: tuple[str, ...], options: EngineOptions) -> tuple[str, ...]:
        """What really runs: onnxruntime drops a provider that does not start, and only says so in its log."""
        full_names = self._session.get_providers()
        in_use = tuple(name for name, full in PROVIDERS.items() if full in full_names)
        dropped = [name for name in chosen if name not in in_use]
        if dropped and options.providers != ("auto",) and not options.allow_fallback:
            raise EngineError(f"provider {', '.join(dropped)} did not start; running: {', '.join(in_use)}")
        if dropped:
            logger.warning("provider %s did not start; running on %s", ", ".join(dropped), ", ".join(in_use))
        return in_use

    def _check_signature(self) -> None:
        inputs = [(node.name, node.type) for node in self._session.get_inputs()]
        outputs = sorted((node.name, node.type) for node in self._session.get_outputs())
        if inputs != [(INPUT, "tensor(uint8)")]:
            raise BundleError(f"bundle {self._label}: expected graph input {INPUT} of uint8, got {inputs}")
        if outputs != [(name, "tensor(float)") for name in OUTPUTS]:
            raise BundleError(f"bundle {self._label}: expected graph outputs {OUTPUTS} of float32, got {outputs}")
        image, shape = self._manifest.image, self._session.get_inputs()[0].shape
        if shape[1:] != [image.height, image.width, 3] or isinstance(shape[0], int):
            raise BundleError(
                f"bundle {self._label}: expected images [N, {image.height}, {image.width}, 3] with N free, got {shape}"
            )


def _return_memory() -> None:
    """glibc keeps what is freed for later; an engine is large, and its successor has its own already."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def provider_options(name: str, options: EngineOptions) -> tuple[str, dict[str, str]]:
    """onnxruntime's name of a provider, with its settings as strings."""
    settings: dict[str, str] = {}
    if name in ("cuda", "tensorrt"):
        settings["device_id"] = str(options.device_id)
    if name == "cuda" and options.gpu_memory_limit_bytes is not None:
        settings["gpu_mem_limit"] = str(options.gpu_memory_limit_bytes)
    if name == "tensorrt":
        if options.gpu_memory_limit_bytes is not None:
            settings["trt_max_workspace_size"] = str(options.gpu_memory_limit_bytes)
        if options.tensorrt_cache is not None:
            settings |= {
                "trt_engine_cache_enable": "True",
                "trt_engine_cache_path": os.fspath(options.tensorrt_cache),
                "trt_timing_cache_enable": "True",
                "trt_timing_cache_path": os.fspath(options.tensorrt_cache),
            }
    return PROVIDERS[name], settings
