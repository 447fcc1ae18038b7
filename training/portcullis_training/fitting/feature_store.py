"""Features of images on the disk, by the image's digest: every photo is decoded and encoded once.

A store belongs to one encoder (weights, normalisation, image geometry), whose digest names its file. What is encoded is
kept at once, so that an interrupted run goes on where it stopped; several runs on the same photos share it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from portcullis_training.errors import DataError

_ROWS_AT_ONCE = 500  # SQLite takes only so many values in one question


class Encoded(NamedTuple):
    """What the frozen part of a classifier makes of N images."""

    features: Tensor  # (N, d)
    middle: Tensor  # (N, m), spatial means of the middle block


class FeatureStore:
    """Rows of float32 by digest."""

    def __init__(self, encoder: str, directory: Path | None = None) -> None:
        self.path = (directory or default_directory()) / f"{encoder[:32]}.sqlite"

    @property
    def exists(self) -> bool:
        """Whether anything was ever encoded by this encoder."""
        return self.path.is_file()

    def missing(self, digests: Iterable[str]) -> set[str]:
        """Those of the digests that are not encoded yet."""
        wanted = set(digests)
        with closing(self._open()) as database:
            for some in _in_portions(sorted(wanted)):
                query = f"SELECT digest FROM encoded WHERE digest IN ({_places(some)})"
                wanted -= {row[0] for row in database.execute(query, some)}
        return wanted

    def add(self, digests: Sequence[str], encoded: Encoded) -> None:
        """Keep the rows of some images."""
        rows = zip(digests, *(part.float().cpu().numpy() for part in encoded), strict=True)
        values = [(digest, features.tobytes(), middle.tobytes()) for digest, features, middle in rows]
        try:
            with closing(self._open()) as database, database:
                database.executemany("INSERT OR REPLACE INTO encoded VALUES (?, ?, ?)", values)
        except sqlite3.OperationalError as error:
            raise DataError(f"features cannot be kept in {self.path}: {error}; set XDG_CACHE_HOME") from None

    def read(self, digests: Sequence[str]) -> Encoded:
        """The rows of these images, in this order; all of them must have been encoded."""
        found: dict[str, tuple[bytes, bytes]] = {}
        with closing(self._open()) as database:
            for some in _in_portions(digests):
                query = f"SELECT digest, features, middle FROM encoded WHERE digest IN ({_places(some)})"
                found |= {digest: (features, middle) for digest, features, middle in database.execute(query, some)}
        columns = zip(*(found[digest] for digest in digests), strict=True)
        return Encoded(
            *(torch.from_numpy(np.stack([np.frombuffer(row, np.float32) for row in one])) for one in columns)
        )

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self.path)
            database.execute(
                "CREATE TABLE IF NOT EXISTS encoded (digest TEXT PRIMARY KEY, features BLOB, middle BLOB) WITHOUT ROWID"
            )
        except (OSError, sqlite3.DatabaseError) as error:
            raise DataError(f"features cannot be kept in {self.path}: {error}; set XDG_CACHE_HOME") from None
        return database


def default_directory() -> Path:
    """Where features are kept; what lies there may be deleted at any time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "portcullis" / "features"


def _in_portions(digests: Iterable[str]) -> Iterable[list[str]]:
    rest = iter(digests)
    while some := list(islice(rest, _ROWS_AT_ONCE)):
        yield some


def _places(values: list[str]) -> str:
    return ", ".join("?" * len(values))
