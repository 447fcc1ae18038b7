"""Replace a file whole or not at all, so that a crash leaves the old one or the new one, never a half."""

import os
from pathlib import Path


def replace_durably(file: Path, text: str, sync: bool = True) -> None:
    """Replace a file whole or not at all; with `sync` the new one outlives a loss of power."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("w") as stream:
            stream.write(text)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        draft.replace(file)
        if sync:
            sync_names(file.parent)
    finally:
        draft.unlink(missing_ok=True)


def sync_names(directory: Path) -> None:
    """A file's name is kept in its directory, which a sync of the file leaves out."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
