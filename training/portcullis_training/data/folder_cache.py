"""What is remembered of a folder between two commands, in a small database in the user's cache.

A cache that cannot be kept or read costs time and nothing else: it is then in memory, or empty.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from portcullis_training.runs.exclusive import alone

logger = logging.getLogger(__name__)

# Another number where the columns change: what an older version remembered is forgotten.
_FACTS, _PAIRS = "facts_1", "pairs_1"
_TABLES = (
    f"CREATE TABLE IF NOT EXISTS {_FACTS} "
    "(key TEXT PRIMARY KEY, digest TEXT, fault TEXT, width INTEGER, height INTEGER, thumbnail BLOB)",
    f"CREATE TABLE IF NOT EXISTS {_PAIRS} (key TEXT PRIMARY KEY, pairs BLOB)",
)

Row = tuple[Any, ...]


class FolderCache:
    """Rows by key."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def facts(self) -> dict[str, Row]:
        """Everything known of files, without the key."""
        return {key: tuple(row) for key, *row in self._select(f"SELECT * FROM {_FACTS}")}

    def add_facts(self, rows: Iterable[Row]) -> None:
        """Keep rows that begin with their key."""
        self._insert(f"INSERT OR REPLACE INTO {_FACTS} VALUES (?, ?, ?, ?, ?, ?)", rows)

    def pairs(self, key: str) -> bytes | None:
        """The near-duplicates of a set of files."""
        return next((row[0] for row in self._select(f"SELECT pairs FROM {_PAIRS} WHERE key = ?", key)), None)

    def add_pairs(self, key: str, pairs: bytes) -> None:
        """Keep the near-duplicates of a set of files."""
        self._insert(f"INSERT OR REPLACE INTO {_PAIRS} VALUES (?, ?)", [(key, pairs)])

    def _select(self, query: str, *values: str) -> list[Row]:
        try:
            return self._database.execute(query, values).fetchall()
        except sqlite3.DatabaseError:  # broken: find out again
            return []

    def _insert(self, query: str, rows: Iterable[Row]) -> None:
        try:
            with self._database:
                self._database.executemany(query, rows)
        except sqlite3.DatabaseError as error:
            logger.info("could not remember what was found in the folder: %s", error)


@contextmanager
def open_cache(root: Path) -> Iterator[FolderCache]:
    """The cache of a folder, for one process at a time: the others find what the first has found."""
    path = cache_path(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        turn = alone(path)
    except OSError:  # no cache can be kept, so there is nothing to wait for
        turn = nullcontext()  # type: ignore[assignment]
    with turn:
        database = _connect(str(path)) or _connect(":memory:")
        assert database is not None
        try:
            yield FolderCache(database)
        finally:
            database.close()


def cache_path(root: Path) -> Path:
    """Where a folder is remembered."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "portcullis" / "folders" / f"{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:32]}.sqlite"


def _connect(place: str) -> sqlite3.Connection | None:
    database = None
    try:
        database = sqlite3.connect(place)
        for table in _TABLES:
            database.execute(table)
        return database
    except sqlite3.DatabaseError as error:  # not writable, or not ours
        logger.info("could not open the cache of a folder: %s", error)
        if database is not None:
            database.close()
        return None
