"""What both engines share: lines, sessions, and statements with named values (`:name`) that both read alike."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

Row = dict[str, Any]


class Session(ABC):
    """One transaction."""

    for_update = ""
    """Behind a SELECT: nobody else changes these rows until the transaction ends."""

    @abstractmethod
    def run(self, statement: str, **values: Any) -> list[Row]:
        """Run one statement; its rows, where it gives any."""

    @abstractmethod
    def lock_schema(self) -> None:
        """Nobody else changes tables until the transaction ends."""

    @abstractmethod
    def try_lock(self, name: str) -> bool:
        """Whether nobody else has the lock of this name; then it is ours until the transaction ends."""

    @abstractmethod
    def notify(self) -> None:
        """Wake those who listen, once this is committed."""

    @abstractmethod
    def count(self, statement: str, **values: Any) -> int:
        """Run one statement; how many rows it changed."""


class Line(ABC):
    """One connection, of one thread at a time."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Session]:
        """A transaction that changes nothing."""

    @abstractmethod
    def at_once(self) -> AbstractContextManager[Session]:
        """Every statement is a transaction of its own: a quarter of the messages where there is but one."""

    @abstractmethod
    def writing(self, is_durable: bool = True) -> AbstractContextManager[Session]:
        """A transaction: committed at the end of the block, taken back if that raises.

        What is durable outlives a loss of power, at the price of a sync; the rest may lose its last seconds to one.
        """


class Database(ABC):
    """One database; any thread may use it. Whatever fails in it is one of our errors: away, damaged, or full."""

    clock: str
    """Seconds since 1970 by the database's own clock, as SQL."""

    @abstractmethod
    def line(self) -> AbstractContextManager[Line]:
        """A connection for as long as the block lasts."""

    @abstractmethod
    def stamp(self) -> object:
        """Equal to the one before only if nothing was committed in between."""

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        with self.line() as line, line.reading() as session:
            yield session

    @contextlib.contextmanager
    def writing(self, is_durable: bool = True) -> Iterator[Session]:
        with self.line() as line, line.writing(is_durable) as session:
            yield session

    def read(self, statement: str, **values: Any) -> list[Row]:
        """One statement in a transaction of its own."""
        with self.reading() as session:
            return session.run(statement, **values)


def put(session: Session, table: str, key: str, /, **values: Any) -> None:
    """Have a row as given, whether there was one of that key or not."""
    names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
    changed = ", ".join(f"{name} = excluded.{name}" for name in values if name != key)
    session.run(f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {changed}", **values)
