"""One process at a time: what several of them need, the first one makes and the others find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process of this machine works on `path`; the lock file beside it stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        yield
