"""What a folder of photos holds, and what of it can be trained on: broken files, copies, near-duplicates.

- A file that cannot be decoded is left out.
- Copies (the same bytes) under different labels are all left out: at least one label is wrong, and nobody here knows
  which. Of copies under one label the first is kept.
- Near-duplicates keep one group, which a split never divides: a twin in the calibration split would make the gate's
  promise too bold. Where train and test folders are given, the twin on the training side is left out.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from portcullis.bundle.manifest import ImageSpec
from portcullis_training.data import duplicates
from portcullis_training.data.file_facts import FileFacts, facts_of
from portcullis_training.data.folder_cache import FolderCache, open_cache

logger = logging.getLogger(__name__)

PARTS = ("train", "validation", "test")  # of twins in two parts the one in the later part is kept
MAX_NAMED = 20  # files named one by one in a warning; the rest is only counted

Key = TypeVar("Key", str, int)
Found = tuple[Path, int, str]
"""A file, its class index, its part."""


@dataclass(frozen=True)
class Photo:
    """A readable file of a class, in one of the given parts."""

    path: Path
    label: int
    part: str
    facts: FileFacts


@dataclass(frozen=True, eq=False)
class Inspection:
    """The photos that are kept, those that are not, and why."""

    photos: tuple[Photo, ...]
    groups: NDArray[np.int64]
    """(N,) by photo: near-duplicates have the same number."""
    unreadable: tuple[tuple[Path, str], ...]
    conflicting: tuple[tuple[Photo, ...], ...]
    """Copies under different labels; none of them is kept."""
    copies: tuple[tuple[Photo, ...], ...]
    """Copies under one label; the first is kept."""
    leaked: tuple[tuple[Photo, Photo], ...]
    """(left out, its near-duplicate that is kept in a later part)."""

    @property
    def twins(self) -> tuple[tuple[Photo, ...], ...]:
        """Near-duplicates among the photos that are kept, group by group."""
        together = _by(range(len(self.photos)), lambda position: int(self.groups[position]))
        return tuple(tuple(self.photos[position] for position in group) for group in together if len(group) > 1)

    def of_part(self, part: str) -> NDArray[np.int64]:
        """Positions of the photos of one part."""
        return np.array([index for index, photo in enumerate(self.photos) if photo.part == part], dtype=np.int64)


def inspect(root: Path, found: list[Found], spec: ImageSpec, num_workers: int) -> Inspection:
    """Look at every file of a folder; what was found before is remembered."""
    with open_cache(root) as cache:
        photos, unreadable = _readable(found, facts_of([path for path, _, _ in found], spec, cache, num_workers))
        conflicting, copies = _copies(photos)
        left_out = {photo.path for group in conflicting for photo in group}
        left_out |= {photo.path for group in copies for photo in group[1:]}
        photos = [photo for photo in photos if photo.path not in left_out]
        pairs = _near_pairs(photos, cache)
    leaked = _leaked(photos, pairs)
    lost = {photo.path for photo, _ in leaked}
    kept = [index for index, photo in enumerate(photos) if photo.path not in lost]
    groups = duplicates.groups_of(len(photos), pairs)[kept]
    kept_photos = tuple(photos[index] for index in kept)
    return Inspection(kept_photos, groups, unreadable, tuple(conflicting), tuple(copies), tuple(leaked))


def only_readable(root: Path, found: list[Found], spec: ImageSpec, num_workers: int) -> Inspection:
    """Look at every file, but leave out broken ones only: for sets that nothing is learned from."""
    with open_cache(root) as cache:
        photos, unreadable = _readable(found, facts_of([path for path, _, _ in found], spec, cache, num_workers))
    return Inspection(tuple(photos), np.arange(len(photos)), unreadable, (), (), ())


def _readable(found: list[Found], facts: dict[Path, FileFacts]) -> tuple[list[Photo], tuple[tuple[Path, str], ...]]:
    photos = [Photo(path, label, part, facts[path]) for path, label, part in found if not facts[path].fault]
    return photos, tuple((path, one.fault) for path, one in facts.items() if one.fault)


def warn(inspection: Inspection) -> None:
    """Say what is left out, by name as far as that can be read; once, though every stage of a run looks again."""
    _warn_of("", tuple(f"{path}: {fault}" for path, fault in inspection.unreadable))
    _warn_of("", tuple(_as_conflict(group) for group in inspection.conflicting))
    num_copies, num_leaked = sum(len(group) - 1 for group in inspection.copies), len(inspection.leaked)
    if num_copies:
        _warn_of(f"{num_copies} copies of other files, such as ", (str(inspection.copies[0][1].path),))
    if num_leaked:
        _warn_of(f"{num_leaked} photos that nearly equal one in a test folder, such as ",
                 (str(inspection.leaked[0][0].path),))  # fmt: skip


@cache
def _warn_of(start: str, items: tuple[str, ...]) -> None:
    for item in items[:MAX_NAMED]:
        logger.warning("left out %s%s", start, item)
    if len(items) > MAX_NAMED:
        logger.warning("left out %d more like these", len(items) - MAX_NAMED)


def _as_conflict(group: tuple[Photo, ...]) -> str:
    first, *others = group
    return f"{first.path}: the same file is {', '.join(str(photo.path) for photo in others)}, under another label"


def _copies(photos: list[Photo]) -> tuple[list[tuple[Photo, ...]], list[tuple[Photo, ...]]]:
    """Groups of equal bytes, under different labels and under one; of the latter the one to be kept comes first."""
    groups = [tuple(group) for group in _by(photos, lambda photo: photo.facts.digest) if len(group) > 1]
    conflicting = [group for group in groups if len({photo.label for photo in group}) > 1]
    agreeing = [group for group in groups if len({photo.label for photo in group}) == 1]
    return conflicting, [tuple(sorted(group, key=lambda photo: -PARTS.index(photo.part))) for group in agreeing]


def _near_pairs(photos: list[Photo], cache: FolderCache) -> duplicates.Pairs:
    key = hashlib.sha256("".join(photo.facts.digest for photo in photos).encode()).hexdigest()
    known = cache.pairs(key)
    if known is not None:
        return np.frombuffer(known, np.int64).reshape(-1, 2)
    pairs = duplicates.near_pairs(duplicates.from_bytes([photo.facts.thumbnail for photo in photos]))
    cache.add_pairs(key, pairs.tobytes())
    return pairs


def _leaked(photos: list[Photo], pairs: duplicates.Pairs) -> list[tuple[Photo, Photo]]:
    leaked: dict[Path, tuple[Photo, Photo]] = {}
    for first, second in pairs.tolist():
        early, late = sorted((photos[first], photos[second]), key=lambda photo: PARTS.index(photo.part))
        if early.part != late.part:
            leaked.setdefault(early.path, (early, late))
    return list(leaked.values())


Item = TypeVar("Item")


def _by(items: Iterable[Item], key: Callable[[Item], Key]) -> list[list[Item]]:
    grouped: defaultdict[Key, list[Item]] = defaultdict(list)
    for item in items:
        grouped[key(item)].append(item)
    return list(grouped.values())


def count_classes(photos: Iterable[Photo]) -> Counter[int]:
    """How many photos each class has."""
    return Counter(photo.label for photo in photos)
