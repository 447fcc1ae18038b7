"""What this machine has: cores that we may use, GPUs that can be used. Knows no onnxruntime, so it loads at once."""

import ctypes
import importlib.metadata
import math
import os
from dataclasses import dataclass
from pathlib import Path

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
DRIVER = "libcuda.so.1"


def num_cores(quota_file: Path = CPU_QUOTA) -> int:
    """Cores that this process may use, a container's quota included."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # Linux's alone
    try:
        quota, period = quota_file.read_text().split()
        return max(1, min(allowed, math.floor(int(quota) / int(period))))
    except (OSError, ValueError):  # no quota, or none that is a number ("max")
        return allowed


@dataclass(frozen=True)
class Driver:
    """What NVIDIA's driver says of itself."""

    num_gpus: int
    cuda_major: int
    """The newest CUDA that it can run."""
    status: str


def driver() -> Driver | None:
    """Ask NVIDIA's driver; none where there is none."""
    try:
        library = ctypes.CDLL(DRIVER)
    except OSError:
        return None
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    status = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    return Driver(0 if status else count.value, version.value // 1000, f"error {status}" if status else "no error")


def has_gpu_build() -> bool:
    """Whether onnxruntime's build for GPUs is installed; without loading it."""
    try:
        importlib.metadata.version("onnxruntime-gpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
