"""PostgreSQL, where several machines serve as one. The only user of psycopg, which nobody else needs installed."""

import contextlib
import functools
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from portcullis.errors import DatabaseAway, DatabaseDamaged, SettingsError, StateNotWritten
from portcullis.store.database import Database, Line, Row, Session

CHANNEL = "portcullis"
CONNECTION = {
    "connect_timeout": 3,
    "tcp_user_timeout": 5000,  # milliseconds: a cable that was cut says nothing
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "options": "-c statement_timeout=5000 -c lock_timeout=5000 -c idle_in_transaction_session_timeout=10000"
    " -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3",  # its own end of that cable
    "application_name": "portcullis",
}


class Postgres(Database):
    """One database; a connection for each use, so that none is idle but the link's."""

    clock = "extract(epoch FROM clock_timestamp())"

    def __init__(self, url: str) -> None:
        self._driver = _driver()
        try:
            given = self._driver.conninfo.conninfo_to_dict(url)
        except self._driver.Error as error:
            raise SettingsError(f"the setting database is no address of PostgreSQL: {error}") from None
        self._parameters = {**CONNECTION, **given}

    def line(self) -> AbstractContextManager["PostgresLine"]:
        return self._line(self._parameters)

    def light_line(self) -> AbstractContextManager["PostgresLine"]:
        """One whose commits wait for no disk."""
        options = f"{self._parameters['options']} -c synchronous_commit=off"
        return self._line({**self._parameters, "options": options}, is_light=True)

    @contextlib.contextmanager
    def _line(self, parameters: dict[str, Any], is_light: bool = False) -> Iterator["PostgresLine"]:
        with _told(self._driver):
            connection = self._driver.connect(
                **parameters, autocommit=True, prepare_threshold=None, row_factory=self._driver.rows.dict_row
            )
        try:
            yield PostgresLine(connection, self._driver, is_light)
        finally:
            connection.close()

    def stamp(self) -> object:
        """No two are equal: only asking tells what is new."""
        return object()


class PostgresLine(Line):
    """One connection."""

    def __init__(self, connection: Any, driver: Any, is_light: bool = False) -> None:
        self._connection, self._driver, self._is_light = connection, driver, is_light

    @contextlib.contextmanager
    def at_once(self) -> Iterator[Session]:
        with _told(self._driver):
            yield _PostgresSession(self._connection)

    def reading(self) -> AbstractContextManager[Session]:
        return self.writing()

    @contextlib.contextmanager
    def writing(self, is_durable: bool = True) -> Iterator[Session]:
        with _told(self._driver), self._connection.transaction():
            if not is_durable and not self._is_light:
                self._connection.execute("SET LOCAL synchronous_commit = off")
            yield _PostgresSession(self._connection)

    def listen(self) -> None:
        with _told(self._driver):
            self._connection.execute(f"LISTEN {CHANNEL}")

    def wait(self, seconds: float) -> bool:
        """Until somebody notifies, or so long."""
        with _told(self._driver):
            return any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))


class _PostgresSession(Session):
    for_update = " FOR UPDATE"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, statement: str, **values: Any) -> list[Row]:
        cursor = self._execute(statement, values)
        return cursor.fetchall() if cursor.description else []

    def count(self, statement: str, **values: Any) -> int:
        found: int = self._execute(statement, values).rowcount
        return found

    def _execute(self, statement: str, values: dict[str, Any]) -> Any:
        """PostgreSQL has no text with a NUL in it; one that somebody asks for is found nowhere, and is no fault."""
        texts = {name: value.replace("\0", "\ufffd") for name, value in values.items() if isinstance(value, str)}
        return self._connection.execute(_translated(statement), values | texts)

    def lock_schema(self) -> None:
        self._connection.execute("SELECT pg_advisory_xact_lock(hashtext('portcullis.schema'))")

    def try_lock(self, name: str) -> bool:
        [row] = self.run("SELECT pg_try_advisory_xact_lock(hashtext(:name)) AS is_ours", name=name)
        return bool(row["is_ours"])

    def notify(self) -> None:
        self._connection.execute(f"NOTIFY {CHANNEL}")


@functools.lru_cache
def _translated(statement: str) -> str:
    """`:name`, as we write it, for `%(name)s`."""
    return re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", statement)


@contextlib.contextmanager
def _told(driver: Any) -> Iterator[None]:
    """The driver's errors as ours; they name hosts and users, which are for the log and not for a client."""
    try:
        yield
    except driver.errors.DiskFull as error:
        raise StateNotWritten("the database's disk is full: nothing was changed") from error
    except driver.errors.UndefinedTable as error:
        raise DatabaseDamaged("the database has no such table; an instance that reaches it makes them") from error
    except driver.Error as error:
        raise DatabaseAway("the database cannot be reached or does not answer; what is served goes on") from error


def _driver() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
        import psycopg.rows
    except ImportError as error:
        raise SettingsError(f"a database needs more packages ({error.name}): pip install 'portcullis[fleet]'") from None
    return psycopg
