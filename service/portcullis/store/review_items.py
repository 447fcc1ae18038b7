"""Keeps images for review, bounded: one queue in one database, for every worker of every instance."""

import hashlib
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portcullis.errors import DatabaseAway, ReviewFailure, StateNotWritten, UnknownReviewItem
from portcullis.store.database import Database, Line, Row, Session
from portcullis.store.review_images import Images

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
KEPT_OF_ANSWER = (
    "model",
    "version",
    "label",
    "probability",
    "score",
    "p_value",
    "threshold",
    "operating_point",
    "verdict",
    "reason",
)
# Stranger first. NaN is no number to sort by, so it has a column of its own, where it is the strangest of all.
ORDER = "p_value, sort_score, id"
FILTERS = ("model", "label", "verdict", "state", "is_sampled")


@dataclass(frozen=True)
class Bounds:
    """How much may be kept."""

    max_items: int
    max_bytes: int
    max_age_seconds: float


@dataclass(frozen=True)
class Page:
    """Some rows, and where the next page begins."""

    rows: list[Row]
    num_items: int
    next_position: tuple[float, float, str] | None


class ReviewStore:
    """The queue; as many processes and threads as like, each with a store object of its own."""

    def __init__(self, database: Database, images: Images, bounds: Bounds) -> None:
        self._database, self._images, self._bounds = database, images, bounds

    def prepare(self) -> None:
        """Make room for images; sweep away what a crash has left."""
        self._images.prepare()
        self._images.sweep(self._known)

    # -- the writer's side -------------------------------------------------------------------------------------------

    def add(self, items: Sequence[tuple[bytes, dict[str, Any]]]) -> int:
        """Keep images with their answers, all or none; gives how many were new. None: only drop what is too old."""
        written: list[str] = []
        try:
            with self._database.line() as line:
                evicted = self._add_all(line, items, written)
        except BaseException:
            self._images.remove(written)
            raise
        self._images.remove(evicted)
        return len(written)

    def _add_all(self, line: Line, items: Sequence[tuple[bytes, dict[str, Any]]], written: list[str]) -> list[str]:
        with line.writing(is_durable=False) as session:
            # the one row that every writer changes: they take turns, so that nothing is kept twice
            [totals] = session.run("SELECT * FROM review_totals" + session.for_update)
            now = self._now(session)
            for payload, answer in items:
                if not _seen_again(session, payload, answer):
                    totals["num_ever"] += 1
                    name = self._add_one(session, payload, answer, totals["num_ever"], now, written)
                    totals["num_items"] += 1
                    totals["num_bytes"] += len(payload)
                    written.append(name)
            evicted = self._evict(session, totals, now)
            session.run(
                "UPDATE review_totals SET num_items = :num_items, num_bytes = :num_bytes, num_ever = :num_ever",
                **{key: value for key, value in totals.items() if key != "one"},
            )
        return evicted

    def _add_one(
        self, session: Session, payload: bytes, answer: dict[str, Any], sequence: int, now: float, written: list[str]
    ) -> str:
        identifier, extension = secrets.token_hex(8), extension_of(payload)
        name = f"{identifier}.{extension}"
        try:
            self._images.write(session, name, payload)
        except OSError:
            written.append(name)  # some of it may be there
            raise
        score = _number(answer["score"])
        threshold = -math.inf if answer["threshold"] is None else answer["threshold"]
        row = {key: answer[key] for key in KEPT_OF_ANSWER} | {
            "id": identifier,
            "sequence": sequence,
            "created": now,
            "digest": _digest(payload),
            "extension": extension,
            "num_bytes": len(payload),
            "probability": _number(answer["probability"]),
            "score": score,
            "sort_score": -math.inf if score is None else score,
            "threshold": threshold,
            "candidates": json.dumps(answer["candidates"], ensure_ascii=False),
            "is_sampled": int(answer["is_sampled"]),
        }
        marks = ", ".join(f":{key}" for key in row)
        session.run(f"INSERT INTO review_items ({', '.join(row)}) VALUES ({marks})", **row)
        return name

    def _evict(self, session: Session, totals: Row, now: float) -> list[str]:
        """Delete what is too old, then the oldest until the rest fits, whatever their state."""
        evicted: list[str] = []

        def drop(where: str, **values: Any) -> int:
            statement = f"DELETE FROM review_items WHERE {where} RETURNING id, extension, num_bytes"
            rows = session.run(statement, **values)
            totals["num_items"] -= len(rows)
            totals["num_bytes"] -= sum(row["num_bytes"] for row in rows)
            for row in rows:
                session.run("DELETE FROM review_images WHERE id = :id", id=row["id"])
            evicted.extend(f"{row['id']}.{row['extension']}" for row in rows)
            return len(rows)

        drop("created < :oldest", oldest=now - self._bounds.max_age_seconds)
        oldest = "id IN (SELECT id FROM review_items ORDER BY created, sequence LIMIT :excess)"
        while totals["num_items"] > self._bounds.max_items or totals["num_bytes"] > self._bounds.max_bytes:
            if not drop(oldest, excess=max(1, totals["num_items"] - self._bounds.max_items)):
                break
        return evicted

    def _now(self, session: Session) -> float:
        """By the one clock that all instances share, so that age is the same thing for all."""
        [row] = session.run(f"SELECT {self._database.clock} AS now")
        return float(row["now"])

    def _known(self, identifiers: set[str]) -> set[str]:
        return {row["id"] for row in self._query("SELECT id FROM review_items")} & identifiers

    # -- the reader's side -------------------------------------------------------------------------------------------

    def page(
        self, equal_to: Mapping[str, str | bool | None], limit: int, position: tuple[float, float, str] | None = None
    ) -> Page:
        """Rows whose columns equal what is asked for, the strangest first, behind `position`."""
        given = {name: equal_to.get(name) for name in FILTERS}
        chosen = {name: int(v) if isinstance(v, bool) else v for name, v in given.items() if v is not None}
        where = " AND ".join(f"{name} = :{name}" for name in chosen) or "1 = 1"
        [count] = self._query(f"SELECT COUNT(*) AS num FROM review_items WHERE {where}", **chosen)
        behind = f" AND ({ORDER}) > (:p_value, :sort_score, :id)" if position else ""
        bound = dict(zip(("p_value", "sort_score", "id"), position, strict=True)) if position else {}
        rows = self._query(
            f"SELECT * FROM review_items WHERE {where}{behind} ORDER BY {ORDER} LIMIT :limit",
            **chosen,
            **bound,
            limit=limit + 1,
        )
        last = rows[limit - 1] if len(rows) > limit else None
        following = (last["p_value"], last["sort_score"], last["id"]) if last else None
        return Page(rows[:limit], count["num"], following)

    def sampled(self, model: str, state: str) -> list[Row]:
        """Rows of a model that were drawn by chance, whatever their verdict: a fair sample of what it was asked."""
        chosen = "SELECT * FROM review_items WHERE model = :model AND state = :state AND is_sampled = 1"
        return self._query(chosen + " ORDER BY created, sequence", model=model, state=state)

    def find(self, identifier: str) -> Row:
        """One row."""
        return _one(self._query("SELECT * FROM review_items WHERE id = :id", id=identifier), identifier)

    def decide(self, identifier: str, state: str, true_label: str | None, key_name: str | None) -> Row:
        """Label, dismiss or reopen one item; gives the row as it is then."""
        change = (
            "UPDATE review_items SET state = :state, true_label = :true_label, decided_by = :key_name"
            " WHERE id = :id RETURNING *"
        )
        values = {"state": state, "true_label": true_label, "key_name": key_name, "id": identifier}
        try:
            with self._database.writing() as session:
                return _one(session.run(change, **values), identifier)
        except (DatabaseAway, StateNotWritten) as error:
            raise ReviewFailure(f"the review queue cannot be changed: {error}") from error

    def image(self, identifier: str) -> tuple[bytes, str]:
        """The bytes of one item and their media type."""
        try:
            with self._database.reading() as session:
                rows = session.run("SELECT extension FROM review_items WHERE id = :id", id=identifier)
                extension = _one(rows, identifier)["extension"]
                return self._images.read(session, f"{identifier}.{extension}"), MEDIA_TYPES[extension]
        except DatabaseAway as error:
            raise ReviewFailure(f"the review queue cannot be read: {error}") from error

    def _query(self, statement: str, **values: Any) -> list[Row]:
        try:
            return self._database.read(statement, **values)
        except DatabaseAway as error:
            raise ReviewFailure(f"the review queue cannot be read: {error}") from error


def _one(rows: list[Row], identifier: str) -> Row:
    if not rows:
        raise UnknownReviewItem(f"no item {identifier[:40]!r} in the review queue; it may have been too old")
    return rows[0]


def _seen_again(session: Session, payload: bytes, answer: dict[str, Any]) -> bool:
    """Count it; whether it was drawn by chance this time or before, as a rejected image is kept undrawn too."""
    again = (
        "UPDATE review_items SET num_seen = num_seen + 1, is_sampled = is_sampled | :is_sampled"
        " WHERE model = :model AND digest = :digest"
    )
    values = {"model": answer["model"], "digest": _digest(payload), "is_sampled": int(answer["is_sampled"])}
    return session.count(again, **values) > 0


def _digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def extension_of(payload: bytes) -> str:
    """The file's ending by its first bytes; only what was decoded comes here."""
    return next((extension for start, extension, _ in _SIGNATURES if payload.startswith(start)), "png")


def _number(value: float | None) -> float | None:
    """NaN as nothing: SQLite has no NaN."""
    return None if value is None or math.isnan(value) else value
