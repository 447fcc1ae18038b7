"""A folder of images of any size, a class a sub-folder, with or without train and test folders.

Every file is decoded once, in worker processes, before anything else happens: a broken one is reported by name and
left out, so that the splits are the same in every later stage. What was checked is remembered in the user's cache by
size and time of change, so that the next stage does not decode it again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from service.bundle import ImageSpec
from service.errors import PortcullisError
from service.preprocess import decode
from training.atomic import write_text
from training.data.image_set import FileImages
from training.data.sources import Source
from training.errors import DataError
from training.recipes import RunConfig

logger = logging.getLogger(__name__)

EXTENSIONS = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
TEST_FOLDERS = ("test", "val", "validation")
DEFAULT_SIZE = 224
MAX_NAMED = 20  # broken files named one by one before the rest is only counted


def read_folder(location: str, config: RunConfig) -> Source:
    """`PATH/CLASS/*.jpg`, or `PATH/train/CLASS/*.jpg` with `PATH/test` (or val) beside it."""
    root = Path(location)
    if not root.is_dir():
        raise DataError(f"folder:{location}: no such folder")
    size = config.image_size or DEFAULT_SIZE
    spec = ImageSpec(height=size, width=size, resize_shorter_side=config.resize_shorter_side)
    train_root = root / "train" if (root / "train").is_dir() else root
    test_root = next((root / name for name in TEST_FOLDERS if (root / name).is_dir()), None) if train_root != root else None
    class_names = _class_names(train_root)
    train = _read_images(train_root, class_names, spec, config)
    test = None if test_root is None else _read_images(test_root, class_names, spec, config)
    return Source(train, test, class_names, spec)


def _class_names(root: Path) -> tuple[str, ...]:
    names = tuple(sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")))
    if not names:
        raise DataError(f"folder:{root}: is empty; expected a sub-folder for each class")
    if len(names) < 2:
        raise DataError(f"folder:{root}: expected at least two classes, a sub-folder each, got only {names[0]!r}")
    return names


def _read_images(root: Path, class_names: tuple[str, ...], spec: ImageSpec, config: RunConfig) -> FileImages:
    unknown = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith(".") and path.name not in class_names)
    if unknown:
        raise DataError(f"folder:{root}: class {unknown[0]!r} has no training images; expected {', '.join(class_names)}")
    paths, labels = [], []
    for label, name in enumerate(class_names):
        found = _image_files(root / name)
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise DataError(f"folder:{root}: holds no images; expected {', '.join(sorted(EXTENSIONS))} files in the class folders")
    digests = _check_files(root, paths, config)
    kept = [index for index, digest in enumerate(digests) if digest is not None]
    if not kept:
        raise DataError(f"folder:{root}: none of {len(paths)} files is a readable image; the first is {paths[0]}")
    return FileImages(
        tuple(paths[index] for index in kept),
        np.array(labels, dtype=np.int64)[kept],
        tuple(digest for digest in digests if digest is not None),
        spec,
    )


def _image_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS and path.is_file())


def _check_files(root: Path, paths: list[Path], config: RunConfig) -> list[str | None]:
    """The digest of each file, None for a broken one; broken files are named, or fatal if strict."""
    known = _read_cache(root)
    keys = [_cache_key(path) for path in paths]
    unknown = [index for index, key in enumerate(keys) if key not in known]
    for index, (digest, reason) in zip(unknown, _check_in_processes([paths[i] for i in unknown], config.num_workers), strict=True):
        if digest is None:
            _report(paths[index], reason, is_fatal=config.strict)
        known[keys[index]] = digest
    _write_cache(root, {key: known[key] for key in keys})
    broken = [path for path, key in zip(paths, keys, strict=True) if known[key] is None]
    if broken and config.strict:
        raise DataError(f"{broken[0]}: not a readable image (strict)")
    if broken:
        named = ", ".join(str(path) for path in broken[:MAX_NAMED]) + (" …" if len(broken) > MAX_NAMED else "")
        logger.warning("left out %d of %d files that are not readable images: %s", len(broken), len(paths), named)
    return [known[key] for key in keys]


def _report(path: Path, reason: str, *, is_fatal: bool) -> None:
    if is_fatal:
        raise DataError(f"{path}: {reason}")
    logger.info("left out %s: %s", path, reason)


def _check_in_processes(paths: list[Path], num_workers: int) -> Iterable[tuple[str | None, str]]:
    if num_workers == 0 or len(paths) < 200:  # starting processes costs more than so few files
        return [check_file(path) for path in paths]
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(check_file, paths, chunksize=64))


def check_file(path: Path) -> tuple[str | None, str]:
    """(sha256 of the bytes, "") of a readable image, or (None, why not)."""
    try:
        payload = path.read_bytes()
        decode(payload, ImageSpec(height=32, width=32))
        return hashlib.sha256(payload).hexdigest(), ""
    except (PortcullisError, OSError) as error:
        return None, str(error)


def _cache_key(path: Path) -> str:
    stat = path.stat()
    return f"{path} {stat.st_size} {stat.st_mtime_ns}"


def _cache_path(root: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "portcullis" / "folders" / f"{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:32]}.json"


def _read_cache(root: Path) -> dict[str, str | None]:
    try:
        known: dict[str, str | None] = json.loads(_cache_path(root).read_text())
        return known
    except (OSError, ValueError):
        return {}


def _write_cache(root: Path, known: dict[str, str | None]) -> None:
    try:
        _cache_path(root).parent.mkdir(parents=True, exist_ok=True)
        write_text(_cache_path(root), json.dumps(known))
    except OSError as error:  # a cache that cannot be kept costs time, nothing else
        logger.info("could not remember the checked files: %s", error)
