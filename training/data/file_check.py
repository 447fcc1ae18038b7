"""Decode every file of a folder once, before anything else happens, and leave out what is broken.

So the splits are the same in every later stage, and a broken file costs seconds, not the last epoch. What was checked
is remembered in the user's cache by size and time of change, so that the next stage does not decode it again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from service.bundle import ImageSpec
from service.errors import PortcullisError
from service.preprocess import decode
from training import atomic
from training.errors import DataError

logger = logging.getLogger(__name__)

Verdicts = dict[str, tuple[str, str]]  # cache key → (sha256 of the bytes or "", what is wrong or "")

MAX_NAMED = 20  # broken files named one by one; the rest is only counted
MIN_FILES_FOR_PROCESSES = 500  # starting processes costs more than so few files


def readable_files(
    root: Path, paths: list[Path], spec: ImageSpec, *, is_strict: bool, num_workers: int
) -> dict[Path, str]:
    """The sha256 of each file that decodes; the others are named in a warning, or raised if strict."""
    verdicts = _verdicts(root, paths, spec, num_workers)
    broken = [(path, verdict[1]) for path, verdict in verdicts.items() if verdict[1]]
    if broken and is_strict:
        raise DataError(f"{broken[0][0]}: {broken[0][1]} ({len(broken)} broken files; --no-strict leaves them out)")
    for path, reason in broken[:MAX_NAMED]:
        logger.warning("left out %s: %s", path, reason)
    if len(broken) > MAX_NAMED:
        logger.warning("left out %d broken files more", len(broken) - MAX_NAMED)
    return {path: digest for path, (digest, reason) in verdicts.items() if not reason}


def _verdicts(root: Path, paths: list[Path], spec: ImageSpec, num_workers: int) -> dict[Path, tuple[str, str]]:
    known = _read_cache(root)
    keys = {path: _cache_key(path, spec) for path in paths}
    unknown = [path for path in paths if keys[path] not in known]
    for path, verdict in zip(unknown, _check_all(unknown, spec, num_workers), strict=True):
        known[keys[path]] = verdict
    if unknown:
        _write_cache(root, known)
    return {path: known[keys[path]] for path in paths}


def _check_all(paths: list[Path], spec: ImageSpec, num_workers: int) -> list[tuple[str, str]]:
    if num_workers == 0 or len(paths) < MIN_FILES_FOR_PROCESSES:
        return [check_file(path, spec) for path in paths]
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(partial(check_file, spec=spec), paths, chunksize=64))


def check_file(path: Path, spec: ImageSpec) -> tuple[str, str]:
    """(sha256 of the bytes, "") of a readable image, or ("", what is wrong)."""
    try:
        payload = path.read_bytes()
        decode(payload, spec)
        return hashlib.sha256(payload).hexdigest(), ""
    except (PortcullisError, OSError) as error:
        return "", str(error) or type(error).__name__


def _cache_key(path: Path, spec: ImageSpec) -> str:
    stat = path.stat()
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns} {spec.height}x{spec.width}/{spec.resize_shorter_side}"


def _cache_path(root: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "portcullis" / "folders" / f"{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:32]}.json"


def _read_cache(root: Path) -> Verdicts:
    try:
        return {key: (digest, reason) for key, (digest, reason) in json.loads(_cache_path(root).read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):  # absent or not ours: check again
        return {}


def _write_cache(root: Path, known: Verdicts) -> None:
    try:
        _cache_path(root).parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(_cache_path(root), json.dumps(known))
    except OSError as error:  # a cache that cannot be kept costs time, nothing else
        logger.info("could not remember the checked files: %s", error)
