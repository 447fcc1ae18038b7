"""The desired state: what every worker must agree on, one small file, written whole or not at all.

A worker never tells another what to do. It writes what should be; each reads it, reconciles and confirms. The file
carries its own digest and has a twin: one that is cut short at any byte, or damaged, costs nothing.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from portcullis.errors import StateNotWritten
from portcullis.store.durable import replace_durably, sync_names

STATE_FILE = "state.json"
TWIN_FILE = "state.twin.json"
LOCK_FILE = "state.lock"
AUDIT_FILE = "audit.jsonl"


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
    """Reads and writes the desired state in the runtime directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / STATE_FILE
        self._parsed: tuple[bytes, DesiredState] | None = None

    def read(self) -> DesiredState | None:
        """The last whole state; none where there never was one, or none can be read now. Cheap while it is the same."""
        for file in (self._file, self._directory / TWIN_FILE):
            with contextlib.suppress(OSError):
                state = self._parse(file.read_bytes())
                if state is not None:
                    return state
        return None

    def write(self, state: DesiredState) -> None:
        """Replace the state atomically; the caller holds the lock. The twin comes first: what was answered, stays."""
        body = state.model_dump(mode="json")
        text = json.dumps({"sha256": _digest(body), "state": body}, indent=1)
        try:
            for file in (TWIN_FILE, STATE_FILE):
                replace_durably(self._directory / file, text)
        except OSError as error:
            raise StateNotWritten(f"the runtime directory takes no writes: {error.strerror}") from error

    def change(
        self, edit: Callable[[DesiredState], DesiredState], key_name: str, action: str, **details: Any
    ) -> tuple[DesiredState, DesiredState]:
        """Read, edit, audit and write under a lock that all processes share; gives the state before and after.

        An edit that changes nothing is not written. One that cannot be audited is not made.
        """
        with self.lock():
            before = self.read()
            if before is None:
                raise StateNotWritten("there is no desired state to change; restart the service")
            after = edit(before)
            if after == before:
                return before, before
            after = after.model_copy(update={"revision": before.revision + 1})
            with self._audited(key_name, action, **details, revision=after.revision):
                self.write(after)
        return before, after

    def record(self, key_name: str, action: str, **details: Any) -> None:
        """Audit what an admin did beside the desired state."""
        with self.lock(), self._audited(key_name, action, **details):
            pass

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Only one process edits at a time; the kernel frees the lock of one that dies."""
        with (self._directory / LOCK_FILE).open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _audited(self, key_name: str, action: str, **details: Any) -> Iterator[None]:
        """One line for the record: when, whose key (never the key itself), what.

        It is written first; if what it records then fails, it is taken back, which needs no space.
        """
        entry = {"time": datetime.now(UTC).isoformat(), "key": key_name, "action": action, **details}
        file = self._directory / AUDIT_FILE
        size = file.stat().st_size if file.exists() else 0
        try:
            with file.open("a") as stream:
                stream.write(json.dumps(entry) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            if size == 0:
                sync_names(self._directory)
            yield
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.truncate(file, size)
            if isinstance(error, OSError):
                raise StateNotWritten(f"the audit log takes no writes: {error.strerror}") from error
            raise

    def _parse(self, text: bytes) -> DesiredState | None:
        known = self._parsed
        if known is not None and known[0] == text:
            return known[1]
        state = _parse(text)
        if state is not None:
            self._parsed = text, state
        return state


def _parse(text: bytes) -> DesiredState | None:
    try:
        content = json.loads(text)
        if content["sha256"] != _digest(content["state"]):
            return None
        return DesiredState.model_validate(content["state"])
    except (ValueError, KeyError, TypeError, ValidationError):
        return None


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
