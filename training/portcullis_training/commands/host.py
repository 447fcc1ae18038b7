"""Two settings of the host that make training on a CPU faster; both are harmless elsewhere.

Measured here (docs/training.md): without them a neighbour that uses one core halves the speed, and every activation
costs page faults. Call `settle()` before torch is imported.
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
_KEPT_BYTES = 2**30


def settle() -> None:
    """Let idle threads sleep instead of spin, and keep freed memory for the next batch."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch loads OpenMP
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
