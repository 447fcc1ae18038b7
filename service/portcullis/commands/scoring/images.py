"""Where the images are that a sheet is made of: a folder, or a URL that fsspec can read. Each has a key, and a name."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from portcullis.errors import PortcullisError

EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"})


class Images(Protocol):
    """Can be sent to another process, and reads there as here."""

    reads_ahead: int
    """How many batches are worth reading at a time."""

    def find(self) -> list[str]:
        """Every image, in a fixed order; what has no image's ending is passed over."""

    def read(self, key: str) -> bytes:
        """The bytes. An OSError is the fault of this file alone; anything else ends the run."""


def images_at(source: str) -> Images:
    """What a person named: `scheme://…` or a folder."""
    return Tree(source.rstrip("/")) if "://" in source else Folder(Path(source))


def name_of(key: str) -> str:
    """An image's name in the sheet: in valid UTF-8, whatever the disk says."""
    return os.fsencode(key).decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Folder:
    """A folder with all below it."""

    path: Path
    reads_ahead = 1

    def find(self) -> list[str]:
        return [file.relative_to(self.path).as_posix() for file in find_images(self.path)]

    def read(self, key: str) -> bytes:
        return (self.path / key).read_bytes()


def find_images(folder: Path) -> list[Path]:
    """Every image file below a folder, in a fixed order."""
    if not folder.is_dir():
        raise PortcullisError(f"expected a folder of images, got {folder}")
    return sorted(Path(root) / name for root, _, names in os.walk(folder) for name in _images(names))


class Tree:
    """Everything below a URL. Its store may be away, which is not the fault of an image."""

    reads_ahead = 16

    def __init__(self, url: str) -> None:
        self._url = url

    def __getstate__(self) -> dict[str, str]:
        return {"_url": self._url}  # whoever gets it opens the URL anew

    def find(self) -> list[str]:
        files, root = self._opened
        try:
            found = files.find(root)
        except Exception as error:  # the words of whichever store it is
            raise PortcullisError(f"cannot list {self._url}: {error}") from None
        if not found:
            raise PortcullisError(f"expected images below {self._url}, found nothing")
        return sorted(_images(path.removeprefix(root).lstrip("/") for path in found))

    def read(self, key: str) -> bytes:
        files, root = self._opened
        try:
            content: bytes = files.cat_file(f"{root}/{key}")
            return content
        except (FileNotFoundError, PermissionError):
            raise
        except Exception as error:
            raise PortcullisError(f"cannot read {self._url}/{key}: {error}") from None

    @property
    def _opened(self) -> tuple[Any, str]:
        from portcullis.bundle.sources.tree import open_tree

        if "_open" not in vars(self):
            self._open = open_tree(self._url)
        return self._open


def _images(names: Iterable[str]) -> Iterable[str]:
    return (name for name in names if PurePosixPath(name).suffix.lower() in EXTENSIONS)
