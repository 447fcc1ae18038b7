"""What this machine has: cores that we may use, GPUs that can be used. Knows no onnxruntime, so it loads at once."""

import ctypes
import importlib.metadata
import math
import os
from pathlib import Path

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def num_cores(quota_file: Path = CPU_QUOTA) -> int:
    """Cores that this process may use, a container's quota included."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = quota_file.read_text().split()
        return max(1, min(allowed, math.floor(int(quota) / int(period))))
    except (OSError, ValueError):  # no quota, or none that is a number ("max")
        return allowed


def has_nvidia_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def num_gpus() -> int:
    """GPUs that the driver shows and the installed build of onnxruntime can use."""
    if not has_nvidia_driver() or not _has_gpu_build():
        return 0
    driver = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _has_gpu_build() -> bool:
    try:
        importlib.metadata.version("onnxruntime-gpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
