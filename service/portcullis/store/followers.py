"""Who follows the desired state, and how far: a row a worker in its instance's file, a row an instance in the fleet's.

They are for the answer to an admin call, and for no worker's own decisions. One that is not there is not waited for.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter

from portcullis.store.database import Database, Line, Session, put
from portcullis.store.state import RAISE, READ_STATE, DesiredState, parse

LIVING_SECONDS = 15.0
RECENT_LINES = 100
"""Of the audit log, in which somebody may have raised the revision while an admin waits."""
FORGOTTEN_SECONDS = 3600.0


class Place(NamedTuple):
    """One worker of one instance; none where that is not known."""

    instance: str
    worker: int | None

    def __str__(self) -> str:
        return "nobody knows who" if self.worker is None else f"worker {self.worker} of {self.instance}"


Behind = dict[Place, str]
"""Workers that have not followed a change yet, and why."""


class Followed(BaseModel):
    """How far one worker has come. What a newer service says beside is left out."""

    model_config = ConfigDict(frozen=True)

    revision: int
    """The state that it has taken up: every gate that it could choose is in force."""
    behind: dict[str, str] = {}
    """Names that it does not serve as wanted yet, and why."""
    other_gate: tuple[str, ...] = ()
    """Of these, the ones whose gate is not the one that is wanted."""

    def lack(self, revision: int, name: str | None, only_gate: bool) -> str | None:
        """What it lacks of a revision, for one name or all."""
        if self.revision < revision:
            return "it has not taken up the change yet"
        lacking = {key: why for key, why in self.behind.items() if not only_gate or key in self.other_gate}
        if name is not None:
            return lacking.get(name)
        return "; ".join(f"{key}: {why}" for key, why in lacking.items()) or None


_WORKERS = TypeAdapter(dict[int, Followed])


class Look:
    """One who waits, with a connection of its own for as long as that takes."""

    def __init__(self, line: Line, instance: str | None, clock: str) -> None:
        self._line, self._instance, self._clock = line, instance, clock

    def behind(self, revision: int, name: str | None = None, only_gate: bool = False) -> Behind:
        """The living workers that have not followed so far, for one name or all, and why."""
        with self._line.reading() as session:
            if self._instance is not None:
                known = {self._instance: read_workers(session)}
            else:
                revision = max(revision, self._raised(session))
                known = self._all(session, revision)
        lacks = {
            Place(instance, slot): followed.lack(revision, name, only_gate)
            for instance, workers in known.items()
            for slot, followed in workers.items()
        }
        return {place: lack for place, lack in lacks.items() if lack is not None}

    def _raised(self, session: Session) -> int:
        """Where the database went back: what its revision was raised to, or will be for those who are further. Until
        they have that, their own is of changes that the database has forgotten, and says nothing of ours."""
        [row] = session.run(
            "SELECT MAX(revision) AS revision FROM (SELECT revision FROM audit WHERE action = :action"
            " AND number > (SELECT MAX(number) FROM audit) - :recent UNION ALL SELECT revision + 1 FROM instances"
            f" WHERE {_is_living(self._clock)} AND revision > (SELECT revision FROM state)) AS raised",
            action=RAISE,
            recent=RECENT_LINES,
            living=LIVING_SECONDS,
        )
        return int(row["revision"] or 0)

    def _all(self, session: Session, revision: int) -> dict[str, dict[int, Followed]]:
        """Of a large fleet only those who lack something are read."""
        rows = session.run(
            f"SELECT id, workers FROM instances WHERE {_is_living(self._clock)}"
            " AND (revision < :revision OR num_behind > 0)",
            living=LIVING_SECONDS,
            revision=revision,
        )
        return {row["id"]: _WORKERS.validate_json(row["workers"]) for row in rows}


def read_workers(session: Session) -> dict[int, Followed]:
    """Every worker of an instance, from its own file."""
    rows = session.run("SELECT slot, followed FROM workers")
    return {row["slot"]: Followed.model_validate_json(row["followed"]) for row in rows}


class Followers:
    """The workers of one instance, in its own file; with the fleet's database, those of all instances."""

    def __init__(self, local: Database, instance: str, fleet: Database | None = None) -> None:
        self._local, self._instance, self._fleet = local, instance, fleet

    def confirm(self, slot: int, followed: Followed) -> None:
        """Say how far the worker of this slot has come."""
        with self._local.writing(is_durable=False) as session:
            put(session, "workers", "slot", slot=slot, followed=followed.model_dump_json())

    def forget(self, slot: int | None = None) -> None:
        """A worker has died, or all have: expect nothing of it until its successor speaks."""
        with self._local.writing(is_durable=False) as session:
            session.run("DELETE FROM workers WHERE :slot IS NULL OR slot = :slot", slot=slot)

    @contextmanager
    def look(self) -> Iterator[Look]:
        """Look at all of them, as often as one likes."""
        database, instance = (self._local, self._instance) if self._fleet is None else (self._fleet, None)
        with database.line() as line:
            yield Look(line, instance, database.clock)

    def behind(self, revision: int, name: str | None = None, only_gate: bool = False) -> Behind:
        """One look."""
        with self.look() as look:
            return look.behind(revision, name, only_gate)


def _is_living(clock: str) -> str:
    """Of a row of `instances`. One that was heard in the future was so before the database's clock was set back."""
    return f"(abs(instances.beat - {clock}) < :living)"


class NameTaken(Exception):
    """Another instance of the fleet has the same name, and lives."""


def beat(
    session: Session, clock: str, instance: str, workers: Mapping[int, Followed], home: str = ""
) -> DesiredState | None:
    """An instance lives, and its workers are so far; gives the state that it should follow, in the same round trip.

    `home`: what tells it from another of the same name, whose row it must not overwrite: nobody would wait for one of
    them.
    """
    revision = min((followed.revision for followed in workers.values()), default=None)
    body = _WORKERS.dump_json(dict(workers)).decode()
    num_behind = sum(bool(followed.behind) for followed in workers.values())
    rows = session.run(
        "INSERT INTO instances (id, beat, revision, num_behind, workers, home)"
        f" VALUES (:id, {clock}, :revision, :num, :body, :home)"
        " ON CONFLICT (id) DO UPDATE SET beat = excluded.beat, revision = excluded.revision,"
        " num_behind = excluded.num_behind, workers = excluded.workers, home = excluded.home"
        " WHERE COALESCE(instances.home, excluded.home) = excluded.home"
        f" OR NOT {_is_living(clock)} RETURNING ({READ_STATE}) AS body",
        id=instance,
        revision=revision,
        num=num_behind,
        body=body,
        home=home,
        living=LIVING_SECONDS,
    )
    if not rows:
        raise NameTaken
    return parse([row for row in rows if row["body"] is not None])


def leave(session: Session, clock: str, instance: str) -> None:
    """An instance ends; those that ended without a word long ago go with it."""
    session.run(
        f"DELETE FROM instances WHERE id = :id OR beat < {clock} - :forgotten",
        id=instance,
        forgotten=FORGOTTEN_SECONDS,
    )
