"""SQLite in the runtime directory: one file, readers never wait for the writer (WAL). The only user of sqlite3."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from portcullis.errors import DatabaseAway, DatabaseDamaged, StateNotWritten
from portcullis.store.database import Database, Line, Row, Session

BUSY_SECONDS = 10.0
COMPANIONS = ("", "-wal", "-shm")
DAMAGED = ".damaged-"
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class Sqlite(Database):
    """One file; it must have been made (`create`) before it can be used."""

    clock = "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._watching: tuple[int, sqlite3.Connection] | None = None
        """A connection that only asks for the version of the data, and the file that it has open."""

    def create(self) -> None:
        """Make the file, where there is none, and see that all of it can be read."""
        with _told(), contextlib.closing(self._open("rwc")) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            found = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
            if found != ["ok"]:
                raise DatabaseDamaged(f"the database is damaged: {found[0] if found else 'it does not answer'}")

    def identity(self) -> int | None:
        """Another file of this name is another number; none while there is no file."""
        try:
            return self.file.stat().st_ino
        except OSError:
            return None

    def set_aside(self) -> Path:
        """Move a damaged file out of the way, with all that belongs to it."""
        target = self.file.with_name(f"{self.file.name}{DAMAGED}{time.time_ns()}")
        for ending in COMPANIONS:
            with contextlib.suppress(FileNotFoundError):
                self.file.with_name(self.file.name + ending).rename(target.with_name(target.name + ending))
        return target

    @contextlib.contextmanager
    def line(self) -> Iterator["SqliteLine"]:
        with _told():
            connection = self._open("rw")
        try:
            yield SqliteLine(connection)
        finally:
            connection.close()

    def stamp(self) -> object:
        """The version of the data in the file of this name: another file is another stamp."""
        with self._lock, _told():
            try:
                inode = self.file.stat().st_ino
            except OSError as error:
                raise DatabaseAway(f"the database is not there: {error.strerror}") from error
            if self._watching is None or self._watching[0] != inode:
                self._let_go()
                self._watching = inode, self._open("rw")
            try:
                [version] = self._watching[1].execute("PRAGMA data_version").fetchone()
            except sqlite3.Error:
                self._let_go()
                raise
            return inode, version

    def close(self) -> None:
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        if self._watching is not None:
            self._watching[1].close()
            self._watching = None

    def _open(self, mode: str) -> sqlite3.Connection:
        address = f"{self.file.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            address, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True
        )
        connection.row_factory = sqlite3.Row
        return connection


class SqliteLine(Line):
    """One connection to the file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def reading(self) -> AbstractContextManager[Session]:
        return self._session("BEGIN")

    @contextlib.contextmanager
    def at_once(self) -> Iterator[Session]:
        with _told():
            yield _SqliteSession(self._connection)

    @contextlib.contextmanager
    def writing(self, is_durable: bool = True) -> Iterator[Session]:
        with _told():
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
        with self._session("BEGIN IMMEDIATE") as session:
            yield session

    @contextlib.contextmanager
    def _session(self, begin: str) -> Iterator[Session]:
        with _told():
            self._connection.execute(begin)
            try:
                yield _SqliteSession(self._connection)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise


class _SqliteSession(Session):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, **values: Any) -> list[Row]:
        return [dict(row) for row in self._connection.execute(statement, values)]

    def lock_schema(self) -> None:
        """A writer is alone in any case."""

    def try_lock(self, name: str) -> bool:
        return True  # likewise

    def notify(self) -> None:
        """Who follows a file looks at its version."""

    def count(self, statement: str, **values: Any) -> int:
        return self._connection.execute(statement, values).rowcount


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        is_cut_short = code == sqlite3.SQLITE_IOERR_SHORT_READ
        if is_cut_short or code & 0xFF in _DAMAGED or str(error).startswith("no such table"):
            raise DatabaseDamaged(f"the database is damaged: {error}") from error
        if code & 0xFF in _FULL:
            raise StateNotWritten(f"the runtime directory takes no writes: {error}") from error
        raise DatabaseAway(f"the database does not answer: {error}") from error
