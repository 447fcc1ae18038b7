"""Write a file whole or not at all: a temporary file beside it, fsync, rename."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write(path: Path, write_content: Callable[[BinaryIO], None]) -> None:
    """Let `write_content` fill a temporary file, then put it in place; on any failure what was there stays."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            write_content(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)  # mkstemp made it private
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Text in UTF-8."""

    def write_encoded(stream: BinaryIO) -> None:
        stream.write(text.encode())

    write(path, write_encoded)
