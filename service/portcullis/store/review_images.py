"""Where the bytes of a kept image lie: in files beside a database of one machine, or in the database of a fleet.

In an object store: answering/review_objects.py.
"""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path

from portcullis.errors import UnknownReviewItem
from portcullis.store.database import Session

ORPHAN_SECONDS = 600.0


class Images(ABC):
    """Keeps bytes under the name of an item's file, `id.extension`."""

    @abstractmethod
    def prepare(self) -> None:
        """Make whatever is needed."""

    @abstractmethod
    def write(self, session: Session, name: str, payload: bytes) -> None:
        """Keep one image, before its item is committed."""

    @abstractmethod
    def read(self, session: Session, name: str) -> bytes:
        """One image; UnknownReviewItem where it has gone."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Let go of images whose items are gone, or never came to be."""

    @abstractmethod
    def sweep(self, is_known: Callable[[set[str]], set[str]]) -> None:
        """Remove what a crash has left; `is_known` says which items there are of those asked for."""


class ImageFiles(Images):
    """A directory. A file is written before its row and removed after it, so a row never points at nothing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def prepare(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._directory.chmod(0o700)  # they are users' images

    def write(self, session: Session, name: str, payload: bytes) -> None:
        (self._directory / name).write_bytes(payload)

    def read(self, session: Session, name: str) -> bytes:
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            raise UnknownReviewItem(f"item {Path(name).stem} has just been removed") from None

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self._directory / name).unlink(missing_ok=True)

    def sweep(self, is_known: Callable[[set[str]], set[str]]) -> None:
        """Young files may belong to a row that is being written."""
        files = list(self._directory.iterdir())
        known = is_known({file.stem for file in files})
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # another worker sweeps too
                if file.stem not in known and time.time() - file.stat().st_mtime > ORPHAN_SECONDS:
                    file.unlink()


class ImageRows(Images):
    """The database itself: image and item come and go in one transaction."""

    def write(self, session: Session, name: str, payload: bytes) -> None:
        session.run("INSERT INTO review_images (id, content) VALUES (:id, :content)", id=id_of(name), content=payload)

    def read(self, session: Session, name: str) -> bytes:
        rows = session.run("SELECT content FROM review_images WHERE id = :id", id=id_of(name))
        if not rows:
            raise UnknownReviewItem(f"item {id_of(name)} has just been removed")
        return bytes(rows[0]["content"])

    def prepare(self) -> None:
        """The table is there."""

    def remove(self, names: Iterable[str]) -> None:
        """They went with their items."""

    def sweep(self, is_known: Callable[[set[str]], set[str]]) -> None:
        """A crash leaves nothing."""


def id_of(name: str) -> str:
    """The item that an image is of."""
    return name.partition(".")[0]
