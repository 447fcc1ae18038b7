"""One process at a time: what several of them need, the first one makes and the others find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process of this machine works on `path`; the lock file beside it stays."""
    with _lock(path):
        yield


@contextmanager
def alone_unless_taken(path: Path) -> Iterator[bool]:
    """The same without waiting: false where another process works on `path` now."""
    lock = _lock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _lock(path: Path) -> FileLock:
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f"{path.name}.lock"))
