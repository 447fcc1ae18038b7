"""Decode every file of a folder once, before anything else happens, and remember what was found.

So the splits are the same in every later stage, and a broken file costs seconds, not the last epoch. Facts are known by
path, size and time of change, and kept as they are found: an interrupted check goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from PIL import Image

from portcullis.bundle.devices import num_cores
from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.preprocess import fit, open_picture, shorter_side_of
from portcullis.errors import PortcullisError
from portcullis_training.data.duplicates import thumbnail
from portcullis_training.data.folder_cache import FolderCache
from portcullis_training.data.progress import bar

MIN_FILES_FOR_PROCESSES = 500  # starting processes costs more than so few files
FILES_KEPT_AT_ONCE = 256


@dataclass(frozen=True)
class FileFacts:
    """What decoding a file once has shown."""

    digest: str
    """sha256 of the bytes; empty for a file that cannot be read."""
    fault: str
    """What is wrong with it, in words; empty for a readable image."""
    width: int = 0
    height: int = 0
    thumbnail: bytes = b""
    """By which near-duplicates are found."""


def facts_of(paths: list[Path], spec: ImageSpec, cache: FolderCache, num_workers: int) -> dict[Path, FileFacts]:
    """The facts of every file, from the cache or by decoding it."""
    keys = {path: _key(path, spec) for path in paths}
    known = {key: FileFacts(*row) for key, row in cache.facts().items()}
    found = _look_at([path for path in paths if keys[path] not in known], spec, num_workers)
    while some := list(islice(found, FILES_KEPT_AT_ONCE)):
        known |= {keys[path]: facts for path, facts in some}
        cache.add_facts((keys[path], *astuple(facts)) for path, facts in some)
    return {path: known[keys[path]] for path in paths}


def look_at(path: Path, spec: ImageSpec) -> FileFacts:
    """The facts of one file, decoded as the service would decode it."""
    try:
        payload = path.read_bytes()
        picture = open_picture(payload, shorter_side_of(spec))
        fit(picture, spec)
        with Image.open(io.BytesIO(payload)) as header:
            width, height = header.size
    except (PortcullisError, OSError) as error:
        return FileFacts("", str(error) or type(error).__name__)
    return FileFacts(hashlib.sha256(payload).hexdigest(), "", width, height, thumbnail(picture))


def _look_at(paths: list[Path], spec: ImageSpec, num_workers: int) -> Iterator[tuple[Path, FileFacts]]:
    with bar(len(paths), "looking", disable=not paths) as progress:
        for one in zip(paths, _looked_at(paths, spec, num_workers), strict=True):
            yield one
            progress.update()


def _looked_at(paths: list[Path], spec: ImageSpec, num_workers: int) -> Iterator[FileFacts]:
    if num_workers == 0 or len(paths) < MIN_FILES_FOR_PROCESSES:
        yield from (look_at(path, spec) for path in paths)
        return
    with ProcessPoolExecutor(min(num_workers, num_cores()), mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(look_at, spec=spec), paths, chunksize=32)


def _key(path: Path, spec: ImageSpec) -> str:
    stat = path.stat()
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns} {spec.height}x{spec.width}/{spec.resize_shorter_side}"
