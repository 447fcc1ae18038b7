"""Execution providers by name: in which order they are tried, and how each is set up. Knows no onnxruntime.

Every option below is handed to the parser of the real GPU wheel by a test: it refuses those that it does not know and
those of the wrong type.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from portcullis.bundle.buckets import bucket_sizes
from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.simulated import is_simulated
from portcullis.errors import EngineError

AUTO = "auto"
CPU = "cpu"
NAMES = {  # short name to onnxruntime's
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    CPU: "CPUExecutionProvider",
}
LIBRARIES = {  # what onnxruntime opens when a provider is first used
    "tensorrt": "libonnxruntime_providers_tensorrt.so",
    "cuda": "libonnxruntime_providers_cuda.so",
}
NUM_SELF_TEST_IMAGES = 4
BEHIND = {"tensorrt": ("tensorrt", "cuda", CPU), "cuda": ("cuda", CPU), CPU: (CPU,)}
"""Who runs the nodes that a provider cannot: the next one, on the same device, and the CPU at the last."""
PLANS_ANEW = ("cuda",)
"""Providers that plan for one batch size, and again for the next: cuDNN keeps one plan a convolution."""


@dataclass(frozen=True)
class EngineOptions:
    """Where and how a graph runs. A process sees one device, the first: its environment hides the others."""

    providers: tuple[str, ...] = (AUTO,)
    """In order of preference, of tensorrt, cuda, cpu: the first that starts is used. `auto`: cuda, then cpu."""
    allow_fallback: bool = False
    """Whether the CPU may stand in where none of those asked for by name starts."""
    threads: int = 1
    max_batch: int = 64
    """The largest batch that will come; TensorRT plans for it."""
    gpu_memory_limit_bytes: int | None = None
    gpu_tf32: bool = False
    gpu_cuda_graphs: bool = False
    gpu_fp16: bool = False
    tensorrt_fp16: bool = False
    tensorrt_cache: Path | None = None
    asked: tuple[str, ...] = ()
    """What a person asked for, where `providers` is what came of it."""
    refusals: tuple[str, ...] = ()
    """Why providers that were preferred did not start, where another process has tried them."""


def order(options: EngineOptions, has_gpu_build: bool) -> tuple[str, ...]:
    """The providers to try, one after another. TensorRT only by name: it builds for minutes before it answers."""
    if options.providers == (AUTO,):
        return ("cuda", CPU) if has_gpu_build else (CPU,)
    unknown = [name for name in options.providers if name not in NAMES and not is_simulated(name)]
    if unknown or not options.providers:
        raise EngineError(f"unknown provider {', '.join(unknown) or '(none)'}; there are: {AUTO}, {', '.join(NAMES)}")
    return tuple(dict.fromkeys([*options.providers, *([CPU] if options.allow_fallback else [])]))


def session_providers(
    name: str, options: EngineOptions, image: ImageSpec, digest: str
) -> list[tuple[str, dict[str, str]]]:
    """What a session on one provider is made of, as onnxruntime wants it: full names, options as text."""
    made_by = {"tensorrt": _tensorrt, "cuda": _cuda, CPU: _cpu}
    options = _of_one_session(name, options)
    parts = (CPU,) if is_simulated(name) else BEHIND[name]
    return [(NAMES[part], made_by[part](options, image, digest)) for part in parts]


def _of_one_session(name: str, options: EngineOptions) -> EngineOptions:
    """A limit of memory is shared evenly among the sessions; CUDA's graphs are for those of one batch size."""
    num_sessions, limit = max(1, len(batch_sizes(name, options.max_batch))), options.gpu_memory_limit_bytes
    return replace(
        options,
        gpu_memory_limit_bytes=None if limit is None else limit // num_sessions,
        gpu_cuda_graphs=options.gpu_cuda_graphs and name in PLANS_ANEW,
    )


def behind(name: str) -> tuple[str, ...]:
    """The provider and those behind it, by their short names."""
    return (name,) if is_simulated(name) else BEHIND[name]


def batch_sizes(name: str, max_batch: int) -> tuple[int, ...]:
    """Sizes that have a session of their own on this provider; none where one session takes any."""
    return bucket_sizes(max_batch) if name in PLANS_ANEW or is_simulated(name) else ()


def tensorrt_directory(options: EngineOptions, digest: str) -> Path | None:
    """A cache for each graph: onnxruntime names its engines after nodes, and two versions of a model share those."""
    return None if options.tensorrt_cache is None else options.tensorrt_cache / digest[:16]


def device_environment(device: str | None, gpu_tf32: bool) -> dict[str, str]:
    """Variables that show a process one device only: an index as nvidia-smi counts, or a UUID (a MIG slice's too)."""
    if device is None:
        return {}
    # TensorRT has no option for it, and would round to 10 bits what the gate was calibrated on with 23.
    rounding = {} if gpu_tf32 else {"NVIDIA_TF32_OVERRIDE": "0"}
    return {"CUDA_VISIBLE_DEVICES": device, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **rounding}


def _cpu(options: EngineOptions, image: ImageSpec, digest: str) -> dict[str, str]:
    return {}


def _cuda(options: EngineOptions, image: ImageSpec, digest: str) -> dict[str, str]:
    settings = {
        "device_id": "0",
        # Trying every algorithm anew for every batch size would stall requests; the heuristic also chooses the same on
        # every start, so that scores do not change with a restart.
        "cudnn_conv_algo_search": "HEURISTIC",
        "use_tf32": str(int(options.gpu_tf32)),  # the gate was calibrated in float32
    }
    if options.gpu_cuda_graphs:
        settings["enable_cuda_graph"] = "1"
    if options.gpu_memory_limit_bytes is not None:
        settings["gpu_mem_limit"] = str(options.gpu_memory_limit_bytes)
        settings["arena_extend_strategy"] = "kSameAsRequested"  # doubling would hit the limit at half of it
    return settings


def _tensorrt(options: EngineOptions, image: ImageSpec, digest: str) -> dict[str, str]:
    largest = max(options.max_batch, NUM_SELF_TEST_IMAGES)
    settings = {
        "device_id": "0",
        "trt_fp16_enable": str(options.tensorrt_fp16),
        # One engine for all batch sizes: without a profile it would be built again for each that is new.
        "trt_profile_min_shapes": _shape(1, image),
        "trt_profile_opt_shapes": _shape(largest, image),
        "trt_profile_max_shapes": _shape(largest, image),
    }
    if options.gpu_memory_limit_bytes is not None:
        settings["trt_max_workspace_size"] = str(options.gpu_memory_limit_bytes)
    directory = tensorrt_directory(options, digest)
    if directory is not None:
        settings |= {
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": os.fspath(directory),
            "trt_timing_cache_enable": "True",
            "trt_timing_cache_path": os.fspath(directory),
        }
    return settings


def _shape(batch: int, image: ImageSpec) -> str:
    return f"images:{batch}x{image.height}x{image.width}x3"
