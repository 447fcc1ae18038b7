"""What a cache asks of the place that bundles are fetched from. Each kind of place is a module beside."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from portcullis.bundle.sources.listing import Listing
from portcullis.errors import BundleError


class Remote(Protocol):
    """A place elsewhere. What goes wrong there is an exception of its library's; `FileNotFoundError` and errors of ours
    mean the same everywhere."""

    url: str

    def look(self) -> Listing:
        """Every version that is whole."""

    def download(self, place: str, file: str, target: Path, max_bytes: int) -> int:
        """Write one file of the version at `place`; how many bytes it has. Refused beyond the limit."""

    def upload(self, directory: Path, name: str, version: int, files: list[str]) -> None:
        """Put a version there; the manifest is the last of its files, since with it the version counts."""


def copy(read: Callable[[int], bytes], target: Path, max_bytes: int) -> int:
    """Write what is read, chunk by chunk: what a place says of a file's size is not relied on."""
    count = 0
    with target.open("wb") as stream:
        while chunk := read(CHUNK_BYTES):
            count += len(chunk)
            if count > max_bytes:
                raise too_large(target.name, max_bytes)
            stream.write(chunk)
    return count


def too_large(file: str, max_bytes: int) -> BundleError:
    return BundleError(f"{file} has more than the {max_bytes} bytes that are left of max_bundle_bytes")


CHUNK_BYTES = 4 * 1024 * 1024
