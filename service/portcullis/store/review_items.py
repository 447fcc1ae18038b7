"""Keeps images for review: rows in SQLite, images in files beside it, both bounded. The only user of sqlite3.

Every worker opens the same database (WAL: readers never wait for the writer). A file is written before its row and
removed after it, so a row never points at nothing; what a crash leaves behind is swept away at the next start.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portcullis.errors import ReviewFailure, UnknownReviewItem
from portcullis.store.review_tables import INSERT, KEPT_OF_ANSWER, LATER_COLUMNS, ORDER, SCHEMA

DATABASE_FILE = "review.db"
LOCK_FILE = "review.lock"
IMAGES_DIRECTORY = "images"
BUSY_SECONDS = 10.0
ORPHAN_SECONDS = 600.0
_SIGNATURES = (  # of the formats that `preprocess` decodes
    (b"\x89PNG", "png", "image/png"),
    (b"\xff\xd8", "jpg", "image/jpeg"),
    (b"RIFF", "webp", "image/webp"),
    (b"GIF8", "gif", "image/gif"),
    (b"BM", "bmp", "image/bmp"),
    (b"II*\x00", "tif", "image/tiff"),
    (b"MM\x00*", "tif", "image/tiff"),
)
MEDIA_TYPES = {extension: media_type for _, extension, media_type in _SIGNATURES}


@dataclass(frozen=True)
class Bounds:
    """How much may be kept."""

    max_items: int
    max_bytes: int
    max_age_seconds: float


@dataclass(frozen=True)
class Page:
    """Some rows, and where the next page begins."""

    rows: list[dict[str, Any]]
    num_items: int
    next_position: tuple[float, float, str] | None


class ReviewStore:
    """One directory; as many processes and threads as like, each with a store object of its own."""

    def __init__(self, directory: Path, bounds: Bounds) -> None:
        self._directory, self._bounds = directory, bounds
        self._images = directory / IMAGES_DIRECTORY
        self._writer: sqlite3.Connection | None = None

    def prepare(self) -> None:
        """Make the directory and the tables; sweep away what a crash has left."""
        self._images.mkdir(parents=True, exist_ok=True)
        self._directory.chmod(0o700)  # they are users' images
        with (self._directory / LOCK_FILE).open("w") as lock, self._connect() as connection:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two workers cannot change to WAL at once
            connection.executescript(f"PRAGMA journal_mode = WAL; BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
            known = {row[1] for row in connection.execute("PRAGMA table_info(items)")}
            for name in LATER_COLUMNS.keys() - known:
                connection.execute(f"ALTER TABLE items ADD COLUMN {name} {LATER_COLUMNS[name]}")
        self.sweep()

    # -- the writer's side -------------------------------------------------------------------------------------------

    def add(self, items: Sequence[tuple[bytes, dict[str, Any]]]) -> int:
        """Keep images with their answers, all or none; gives how many were new. None: only drop what is too old.

        One thread adds: its connection stays open, as closing the last one makes SQLite tidy up its log at a price.
        """
        written: list[tuple[str, str]] = []
        try:
            connection = self._writer = self._writer or self._open()
            with self._transaction(connection):
                for payload, answer in items:
                    self._add_one(connection, payload, answer, written)
                evicted = self._evict(connection, time.time())
        except BaseException:
            self._remove(written)
            raise
        self._remove(evicted)
        return len(written)

    def _add_one(
        self, connection: sqlite3.Connection, payload: bytes, answer: dict[str, Any], written: list[tuple[str, str]]
    ) -> None:
        digest = hashlib.sha256(payload).hexdigest()
        seen_again = "UPDATE items SET num_seen = num_seen + 1 WHERE model = ? AND digest = ?"
        if connection.execute(seen_again, (answer["model"], digest)).rowcount:
            return
        identifier, extension = secrets.token_hex(8), extension_of(payload)
        written.append((identifier, extension))
        self._file(identifier, extension).write_bytes(payload)
        row = {name: answer[name] for name in KEPT_OF_ANSWER} | {"num_bytes": len(payload), "created": time.time()}
        score, probability = _number(answer["score"]), _number(answer["probability"])
        threshold = -math.inf if answer["threshold"] is None else answer["threshold"]
        row |= {"threshold": threshold, "candidates": json.dumps(answer["candidates"], ensure_ascii=False)}
        row |= {"score": score, "probability": probability, "sort_score": -math.inf if score is None else score}
        connection.execute(INSERT, row | {"id": identifier, "digest": digest, "extension": extension})

    def _evict(self, connection: sqlite3.Connection, now: float) -> list[tuple[str, str]]:
        """Delete what is too old, then the oldest until the rest fits, whatever their state."""
        evicted: list[tuple[str, str]] = connection.execute(
            "DELETE FROM items WHERE created < ? RETURNING id, extension", (now - self._bounds.max_age_seconds,)
        ).fetchall()
        while True:
            num_items, num_bytes = connection.execute("SELECT num_items, num_bytes FROM totals").fetchone()
            if num_items <= self._bounds.max_items and num_bytes <= self._bounds.max_bytes:
                return evicted
            excess = max(1, num_items - self._bounds.max_items)
            evicted += connection.execute(
                "DELETE FROM items WHERE rowid IN "
                "(SELECT rowid FROM items ORDER BY created, rowid LIMIT ?) RETURNING id, extension",
                (excess,),
            ).fetchall()

    def close(self) -> None:
        """Let go of the writer's connection, in the thread that added."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def sweep(self) -> None:
        """Remove files that no row knows; young ones may belong to a row that is being written."""
        known = {row["id"] for row in self._query("SELECT id FROM items", ())}
        for file in self._images.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another worker sweeps too
                if file.stem not in known and time.time() - file.stat().st_mtime > ORPHAN_SECONDS:
                    file.unlink()

    # -- the reader's side -------------------------------------------------------------------------------------------

    def page(
        self, equal_to: Mapping[str, str | bool | None], limit: int, position: tuple[float, float, str] | None = None
    ) -> Page:
        """Rows whose columns equal what is asked for, the strangest first, behind `position`."""
        chosen = {name: value for name, value in equal_to.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in chosen) or "1"
        values = tuple(chosen.values())
        [count] = self._query(f"SELECT COUNT(*) AS n FROM items WHERE {where}", values)
        behind, bound = (f" AND ({ORDER}) > (?, ?, ?)", position) if position else ("", ())
        rows = self._query(
            f"SELECT * FROM items WHERE {where}{behind} ORDER BY {ORDER} LIMIT ?",
            (*values, *bound, limit + 1),
        )
        last = rows[limit - 1] if len(rows) > limit else None
        following = (last["p_value"], last["sort_score"], last["id"]) if last else None
        return Page(rows[:limit], count["n"], following)

    def sampled(self, model: str, state: str) -> list[dict[str, Any]]:
        """Rows of a model that were drawn by chance, whatever their verdict: a fair sample of what it was asked."""
        chosen = "SELECT * FROM items WHERE model = ? AND state = ? AND is_sampled ORDER BY created, id"
        return self._query(chosen, (model, state))

    def find(self, identifier: str) -> dict[str, Any]:
        """One row."""
        rows = self._query("SELECT * FROM items WHERE id = ?", (identifier,))
        if not rows:
            raise UnknownReviewItem(f"no item {identifier[:40]!r} in the review queue; it may have been too old")
        return rows[0]

    def decide(self, identifier: str, state: str, true_label: str | None, key_name: str | None) -> dict[str, Any]:
        """Label, dismiss or reopen one item; gives the row as it is then."""
        change = "UPDATE items SET state = ?, true_label = ?, decided_by = ? WHERE id = ?"
        with self._failing_softly(), self._connect() as connection, self._transaction(connection):
            connection.execute(change, (state, true_label, key_name, identifier))
        return self.find(identifier)

    def image(self, identifier: str) -> tuple[bytes, str]:
        """The bytes of one item and their media type."""
        extension = self.find(identifier)["extension"]
        try:
            return self._file(identifier, extension).read_bytes(), MEDIA_TYPES[extension]
        except FileNotFoundError:
            raise UnknownReviewItem(f"item {identifier} has just been removed") from None

    # -- files and connections ---------------------------------------------------------------------------------------

    def _query(self, statement: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        with self._failing_softly(), self._connect() as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement, values)]

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for each use but adding: no thread shares one."""
        connection = self._open()
        try:
            yield connection
        finally:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._directory / DATABASE_FILE, timeout=BUSY_SECONDS, isolation_level=None)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    @staticmethod
    @contextlib.contextmanager
    def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    @staticmethod
    @contextlib.contextmanager
    def _failing_softly() -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ReviewFailure(f"the review store cannot be read or written: {error}") from error

    def _file(self, identifier: str, extension: str) -> Path:
        return self._images / f"{identifier}.{extension}"

    def _remove(self, items: list[tuple[str, str]]) -> None:
        for identifier, extension in items:
            self._file(identifier, extension).unlink(missing_ok=True)


def extension_of(payload: bytes) -> str:
    """The file's ending by its first bytes; only what was decoded comes here."""
    return next((extension for start, extension, _ in _SIGNATURES if payload.startswith(start)), "png")


def _number(value: float | None) -> float | None:
    """NaN as nothing: SQLite has no NaN."""
    return None if value is None or math.isnan(value) else value
