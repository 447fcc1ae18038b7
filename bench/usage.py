"""What processes use of a machine, as its kernel counts it: for `python -m bench.many`."""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path


def processor_seconds(pids: Iterable[int]) -> float:
    """User and system time, of children that have ended too."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def private_megabytes(pids: Iterable[int]) -> float:
    """Memory that no other process shares."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            found = re.findall(r"^Private_\w+:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
            total += sum(map(int, found))
    return total / 1000
