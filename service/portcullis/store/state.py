"""The desired state: what every worker of every instance must agree on. One row, changed with a line of the audit log.

A worker never tells another what to do. It writes what should be; each reads it, reconciles and confirms.
"""

import json
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from portcullis.errors import Conflict, DatabaseAway, DatabaseDamaged, ServiceError, StateNotWritten
from portcullis.store.database import Database, Row, Session, put

logger = logging.getLogger(__name__)

CONTESTED = ("default", "is_pinned", "gate", "shadow")
"""Of what should be served under a name, what has one value; versions are loaded and unloaded one by one."""
RAISE = "raise"
"""In the audit log, what a link does where the database went back."""
Edit = Callable[["DesiredState"], "DesiredState"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Shadow(_Frozen):
    """A candidate version that sees a share of the traffic; its answers are compared, never returned."""

    version: int
    share: float = Field(gt=0, le=1)
    session: int = 0
    """Revision in which it began: comparisons of another session are not added to this one's."""


class ServedModel(_Frozen):
    """What should be served under one name."""

    default: int
    """The version that answers when none is asked for."""
    loaded: tuple[int, ...] = ()
    """Versions that an admin loaded; they stay when the default goes on to another."""
    is_pinned: bool = False
    """Whether the default stays when a newer version appears."""
    gate: str
    shadow: Shadow | None = None

    @property
    def versions(self) -> tuple[int, ...]:
        """Every version that needs an engine."""
        return tuple(sorted({self.default, *self.loaded} | ({self.shadow.version} if self.shadow else set())))


class DesiredState(_Frozen):
    """What should be served, by name."""

    revision: int = 0
    configured_gate: str
    """The gate in the settings when this was written: a changed setting wins over an older admin call."""
    configured_serve: tuple[str, ...] = ()
    """Likewise for what the settings serve."""
    models: dict[str, ServedModel]
    unloaded: tuple[str, ...] = ()
    """Names that an admin unloaded: a restart or a new version does not bring them back."""

    def with_model(self, name: str, model: ServedModel) -> "DesiredState":
        """A copy in which `name` is as given."""
        unloaded = tuple(other for other in self.unloaded if other != name)
        return self.model_copy(update={"models": self.models | {name: model}, "unloaded": unloaded})

    def without_model(self, name: str) -> "DesiredState":
        """A copy in which `name` is unloaded."""
        models = {key: value for key, value in self.models.items() if key != name}
        return self.model_copy(update={"models": models, "unloaded": tuple(sorted({*self.unloaded, name}))})


class StateStore:
    """Reads and changes the desired state in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._known: tuple[object, DesiredState | None] | None = None
        """The state as last read, and the stamp of the database then."""

    def read(self) -> DesiredState | None:
        """The state; none where there never was one. Cheap while nothing was committed."""
        with self._lock:
            stamp = self._database.stamp()  # before the state: what is committed in between is read again
            if self._known is None or self._known[0] != stamp:
                self._known = stamp, parse(self._database.read(READ_STATE))
            return self._known[1]

    def at_hand(self) -> DesiredState | None:
        """The state where the database answers, for those who can go on without."""
        try:
            return self.read()
        except (DatabaseAway, StateNotWritten):
            return None

    def write(self, state: DesiredState) -> None:
        """Replace the state, whatever it was; not in the audit log."""
        with self._database.writing() as session:
            _put(session, state)

    def begin_with(self, state: DesiredState) -> DesiredState:
        """Write a first state, unless there is one; gives the one that is there then."""
        with self._database.writing() as session:
            added = "INSERT INTO state (one, revision, body) VALUES (1, :revision, :body) ON CONFLICT (one) DO NOTHING"
            session.run(added, revision=state.revision, body=state.model_dump_json())
            return parse(session.run(READ_STATE)) or state

    def change(
        self, edit: Edit, key_name: str, action: str, base: DesiredState | None = None, **details: Any
    ) -> tuple[DesiredState, DesiredState]:
        """Edit the state and put it on record, in one transaction; gives the state before and after.

        With a `base`, what the caller began from, an edit is refused if another has changed the same thing since. An
        edit that changes nothing is not written.
        """
        with self._database.writing() as session:
            before = parse(session.run(READ_STATE + session.for_update))
            if before is None:
                raise StateNotWritten("there is no desired state to change; restart the service")
            if base is not None and base.revision != before.revision:
                _refuse_overlap(session, base, before, edit)
            after = edit(before)
            if after == before:
                return before, before
            after = after.model_copy(update={"revision": before.revision + 1})
            _record(session, after.revision, key_name, action, details)
            _put(session, after)
        return before, after

    def raise_above(self, revision: int, fallback: DesiredState) -> None:
        """The database went back, or is another: have its state followed by those who are further already."""
        with self._database.writing() as session:
            found = parse(session.run(READ_STATE + session.for_update))
            if found is not None and found.revision > revision:  # another link was first
                return
            after = (found or fallback).model_copy(update={"revision": revision + 1})
            _record(session, after.revision, "(link)", RAISE, {"from": found.revision if found else None})
            _put(session, after)

    def record(self, key_name: str, action: str, **details: Any) -> None:
        """Put on record what an admin did beside the desired state."""
        with self._database.writing() as session:
            session.run(READ_STATE + session.for_update)
            _record(session, None, key_name, action, details)

    def audit(self, limit: int = 1000) -> list[Row]:
        """The latest lines of the audit log, the oldest first."""
        rows = self._database.read("SELECT * FROM audit ORDER BY number DESC LIMIT :limit", limit=limit)
        return [row | {"details": json.loads(row["details"])} for row in reversed(rows)]


READ_STATE = "SELECT body FROM state"


def parse(rows: list[Row]) -> DesiredState | None:
    """The state that READ_STATE found."""
    if not rows:
        return None
    try:
        return DesiredState.model_validate_json(rows[0]["body"])
    except ValidationError as error:
        raise DatabaseDamaged("the desired state in the database is none that this service understands") from error


def _put(session: Session, state: DesiredState) -> None:
    put(session, "state", "one", one=1, revision=state.revision, body=state.model_dump_json())
    session.notify()


def _record(session: Session, revision: int | None, key_name: str, action: str, details: dict[str, Any]) -> None:
    """One line for the record: when, whose key (never the key itself), what. The caller has locked the state."""
    rest = {name: value for name, value in details.items() if name != "model"}
    session.run(
        "INSERT INTO audit (number, revision, time, key, action, model, details)"
        " SELECT COALESCE(MAX(number), 0) + 1, CAST(:revision AS BIGINT), :time, :key_name, :action, :model, :details"
        " FROM audit",
        revision=revision,
        time=datetime.now(UTC).isoformat(),
        key_name=key_name,
        action=action,
        model=details.get("model"),
        details=json.dumps(rest),
    )


def _refuse_overlap(session: Session, base: DesiredState, current: DesiredState, edit: Edit) -> None:
    """Of two changes at once of the same thing one wins; the other is told by whom, and what."""
    try:
        wanted = edit(base)
    except ServiceError:
        return  # it did not fit even then: the edit itself says why
    ours, theirs = _differences(base, wanted), _differences(base, current)
    for name, field in sorted(ours.keys() & theirs.keys()):
        before, after = theirs[name, field]
        if ours[name, field][1] != after:
            who = "SELECT key, revision FROM audit WHERE model = :model AND revision > :base ORDER BY number DESC"
            line = next(iter(session.run(who, model=name, base=base.revision)), None)
            by = f" by {line['key']}, in revision {line['revision']}" if line else ""
            raise Conflict(f"{field} of {name} was changed meanwhile from {before} to {after}{by}; look, and try again")


def _differences(before: DesiredState, after: DesiredState) -> dict[tuple[str, str], tuple[Any, Any]]:
    """What differs, by name and field, as it was and as it is; a name that is not served has nothing in any field."""
    found: dict[tuple[str, str], tuple[Any, Any]] = {}
    for name in before.models.keys() | after.models.keys():
        for field in CONTESTED:
            old, new = (getattr(state.models.get(name), field, "nothing") for state in (before, after))
            if old != new:
                found[name, field] = old, new
    return found
