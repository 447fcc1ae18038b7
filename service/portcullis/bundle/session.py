"""Opens a graph on one provider, or says in one line why that provider does not start. The only user of onnxruntime.

onnxruntime has a fallback of its own, which is switched off here: it drops a provider whose library does not load and
says so in its log only, and one that fails it tries again without its options, on the first device.
"""

import contextlib
import ctypes
import fcntl
import functools
import io
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.putenv("ORT_DISABLE_TELEMETRY", "1")  # read when onnxruntime loads: a server reports its usage to nobody

import onnxruntime

from portcullis.bundle import devices
from portcullis.bundle.files import MODEL_FILE, Bundle
from portcullis.bundle.providers import CPU, LIBRARIES, NAMES, EngineOptions, session_providers, tensorrt_directory
from portcullis.bundle.simulated import SimulatedSession, costs_of, is_simulated
from portcullis.errors import BundleError, ProviderUnavailable

logger = logging.getLogger(__name__)

_QUIET = 3  # onnxruntime's severity: errors only
_SILENT = 4  # only what ends the process: what a provider says before it fails is told by us, once
_GRAPH_ERRORS = ("InvalidGraph", "InvalidProtobuf", "NotImplemented")
onnxruntime.set_default_logger_severity(_SILENT)


def has_gpu_build() -> bool:
    """Whether the installed onnxruntime was built for CUDA, whatever this machine has."""
    return NAMES["cuda"] in onnxruntime.get_available_providers()


def open_session(bundle: Bundle, provider: str, options: EngineOptions) -> Any:
    """A session on exactly this provider, with the CPU behind it for nodes that it cannot run."""
    graph = bundle.read(MODEL_FILE)
    if options.gpu_fp16 and (provider == "cuda" or is_simulated(provider)):
        graph = _in_half(graph, provider)
    if is_simulated(provider):
        return SimulatedSession(_open(bundle, graph, CPU, options), costs_of(provider))
    return _open(bundle, graph, provider, options)


def _in_half(graph: bytes, provider: str) -> bytes:
    """The same graph in 16 bits, but for what goes in and comes out; by a tool of onnxruntime's that needs onnx."""
    try:
        import onnx
        from onnxruntime.transformers.float16 import convert_float_to_float16
    except ImportError:
        reason = "gpu_fp16 needs the package onnx; install portcullis with the extra fp16"
        raise ProviderUnavailable(provider, reason) from None
    half = convert_float_to_float16(onnx.load_from_string(graph), keep_io_types=True)
    return bytes(half.SerializeToString())


def _open(bundle: Bundle, graph: bytes, provider: str, options: EngineOptions) -> Any:
    if provider != CPU:
        _check_machine(provider)
        _preload()
    parts = session_providers(provider, options, bundle.manifest.image, bundle.manifest.files[MODEL_FILE])
    try:
        with _alone_in(
            tensorrt_directory(options, bundle.manifest.files[MODEL_FILE]) if provider == "tensorrt" else None
        ):
            session = onnxruntime.InferenceSession(
                graph, _session_options(options.threads), providers=parts, enable_fallback=0
            )
    except Exception as error:  # onnxruntime raises types of its own that share no parent
        if provider == CPU or type(error).__name__ in _GRAPH_ERRORS:
            problem = f"bundle {bundle.label}: onnxruntime refuses the graph: {type(error).__name__}"
            raise BundleError(problem) from error
        raise ProviderUnavailable(provider, _missing_library(provider) or _one_line(str(error))) from error
    if session.get_providers() != [name for name, _ in parts]:
        raise ProviderUnavailable(
            provider, _missing_library(provider) or "onnxruntime left it out and does not say why"
        )
    session._model_bytes = None  # it would keep the file beside the weights, for a fallback that is not used here
    return session


def device_value(shape: Sequence[int], element_type: Any, device: str) -> "onnxruntime.OrtValue":
    """Memory on a device (`cuda`, or `cpu`) that inputs and outputs can be bound to."""
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, element_type, device)


def reason_of(error: BaseException) -> str:
    """An error of ours in one line, with what onnxruntime said where it was the cause."""
    if isinstance(error, ProviderUnavailable) or error.__cause__ is None:
        return str(error)
    return f"{error}: {_one_line(str(error.__cause__))}"


def _session_options(threads: int) -> "onnxruntime.SessionOptions":
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _QUIET
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # leave idle cores to others
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    return options


def _check_machine(provider: str) -> None:
    """What onnxruntime would say late or not at all."""
    if not has_gpu_build():
        raise ProviderUnavailable(
            provider, "this is onnxruntime's build for CPUs; install portcullis with the extra gpu"
        )
    driver = devices.driver()
    if driver is None:
        raise ProviderUnavailable(provider, "there is no NVIDIA driver here (libcuda.so.1)")
    if driver.num_gpus == 0:
        raise ProviderUnavailable(provider, f"the NVIDIA driver shows no GPU ({driver.status})")
    needed = _cuda_major()
    if driver.cuda_major < needed:
        raise ProviderUnavailable(
            provider, f"the NVIDIA driver is too old: it has CUDA {driver.cuda_major}, and CUDA {needed} is needed"
        )


def _cuda_major() -> int:
    from onnxruntime.capi import build_and_package_info

    return int(str(getattr(build_and_package_info, "cuda_version", None) or "0").split(".")[0])


@functools.cache
def _preload() -> None:
    """Load the libraries of CUDA and cuDNN that came as wheels, once; what it prints is no reason to fail."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        onnxruntime.preload_dlls(directory="")
    for line in said.getvalue().splitlines():
        logger.debug("%s", line)


def _missing_library(provider: str) -> str | None:
    """Why the provider's library does not load, in the linker's own words; none where it does."""
    directory = Path(onnxruntime.__file__).parent / "capi"
    try:
        ctypes.CDLL(os.fspath(directory / "libonnxruntime_providers_shared.so"), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(os.fspath(directory / LIBRARIES[provider]))
    except OSError as error:
        return _one_line(str(error))
    return None


def _one_line(text: str) -> str:
    """What went wrong, without the places in onnxruntime's source, signatures and paths of this machine."""
    if failure := re.search(r"(CUDA|CUDNN|CUBLAS) failure [^;]+", text):
        return failure[0].strip()
    if failure := re.search(r"(Unknown provider option|Failed to parse provider option)[^\n]*", text):
        return failure[0].strip()
    return re.sub(r"\S*/", "", " ".join(text.split()))[-300:]


@contextlib.contextmanager
def _alone_in(directory: Path | None) -> Iterator[None]:
    """One process at a time builds in a cache of TensorRT: the next finds its engine there, whole."""
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "building.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
