"""Bundles of one URL on this machine's disk. Each gets its name whole or not at all, is fetched by one process at a
time, and goes when there are too many bytes. Knows files and locks, not where bundles come from.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from pydantic import ValidationError

from portcullis.bundle.sources.listing import LISTING, Listing
from portcullis.bundle.sources.source import DirectorySource

logger = logging.getLogger(__name__)

Key = tuple[str, int]


class Cache:
    """`<directory>/<digest of the URL>/bundles/<name>/<version>/`, and beside it what else is known of them."""

    def __init__(self, directory: Path, url: str, max_bytes: int) -> None:
        self._directory, self._max_bytes = directory, max_bytes
        self._root = directory / hashlib.sha256(url.encode()).hexdigest()[:16]
        self._bundles = self._root / "bundles"
        for part in ("bundles", "drafts", "locks", "stamps"):
            (self._root / part).mkdir(parents=True, exist_ok=True)
        (self._root / "url").write_text(url + "\n")  # for the person who looks at it

    def path(self, name: str, version: int) -> Path:
        return self._bundles / name / str(version)

    def listing(self) -> Listing:
        """What lies here."""
        found = DirectorySource(self._bundles).look()
        remembered = self.remembered()
        return Listing(found.entries, remembered.default_name if remembered is not None else None)

    def stamp(self, name: str, version: int) -> str | None:
        """What the source's files looked like when the bundle was fetched."""
        try:
            return (self._root / "stamps" / f"{name}@{version}").read_text()
        except OSError:
            return None

    # -- the last look at the source, for all processes --------------------------------------------------------------

    def remember(self, listing: Listing) -> None:
        file = self._root / "listing.json"
        draft = file.with_name(f"listing.{os.getpid()}")
        draft.write_bytes(LISTING.dump_json(listing))
        draft.replace(file)

    def remembered(self) -> Listing | None:
        try:
            return LISTING.validate_json((self._root / "listing.json").read_bytes())
        except (OSError, ValidationError):
            return None

    # -- putting in and taking out -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def alone(self, name: str, version: int) -> Iterator[None]:
        """One process at a time fetches a version; the kernel frees the lock of one that dies."""
        with (self._root / "locks" / f"{name}@{version}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def draft(self, name: str, version: int) -> Iterator[Path]:
        """An empty directory for a bundle that is being fetched; what a killed process left there is gone."""
        place = self._root / "drafts" / f"{name}@{version}"
        shutil.rmtree(place, ignore_errors=True)
        draft = place / str(version)
        draft.mkdir(parents=True)
        try:
            yield draft
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def put(self, draft: Path, name: str, version: int, stamp: str) -> Path:
        """Give a draft its name, in the place of what had it."""
        target = self.path(name, version)
        target.parent.mkdir(parents=True, exist_ok=True)
        old = draft.parent / "old"
        if target.exists():
            target.rename(old)
        draft.rename(target)
        (self._root / "stamps" / f"{name}@{version}").write_text(stamp)
        return target

    def use(self, name: str, version: int) -> None:
        """Say that a bundle is wanted: it goes after those that nobody has wanted for longer."""
        with contextlib.suppress(OSError):
            os.utime(self.path(name, version))

    def prune(self, keep: Collection[Key]) -> None:
        """Remove what was not wanted for the longest time, of other URLs too, until the rest fits."""
        kept = {self.path(name, version) for name, version in keep}
        found = [path for path in self._directory.glob("*/bundles/*/*") if path.is_dir()]
        sizes = {path: _size(path) for path in found}
        excess = sum(sizes.values()) - self._max_bytes
        for path in sorted(sizes.keys() - kept, key=_last_use):
            if excess <= 0:
                return
            shutil.rmtree(path, ignore_errors=True)
            excess -= sizes[path]
            logger.info("removed %s/%s from the cache of bundles", path.parent.name, path.name)
        if excess > 0:
            logger.warning("bundles that are served take %d bytes more than models_cache_bytes", excess)


def _size(path: Path) -> int:
    total = 0
    for file in path.rglob("*"):
        with contextlib.suppress(OSError):  # another process removes it just now
            total += file.stat().st_size
    return total


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
