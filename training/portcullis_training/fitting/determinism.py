"""The same bits every time: always so on a CPU; on a GPU where it is asked for, since it costs speed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@contextmanager
def deterministic_algorithms(is_wanted: bool) -> Iterator[None]:
    """Inside `with`, operators that differ from run to run on a GPU are replaced, or refused by name.

    Enter it before the first operator runs on the GPU: cuBLAS reads its setting once.
    """
    if not is_wanted:
        yield
        return
    was_set, was_enabled = os.environ.get(_WORKSPACE), torch.are_deterministic_algorithms_enabled()
    was_benchmarking = torch.backends.cudnn.benchmark
    os.environ.setdefault(_WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False  # it would choose by time, and so by chance
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_enabled)
        torch.backends.cudnn.benchmark = was_benchmarking
        if was_set is None:
            del os.environ[_WORKSPACE]
