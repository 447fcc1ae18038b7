"""The desired state: what every worker must agree on, one small file, written whole or not at all.

A worker never tells another what to do. It writes what should be; each reads it and reconciles. The file carries its
own digest, and the one before is kept: a file cut short at any byte costs at most the last change.
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

from service import bundle as bundles
from service.errors import SettingsError

STATE_FILE = "state.json"
PREVIOUS_FILE = "state.previous.json"
LOCK_FILE = "state.lock"
AUDIT_FILE = "audit.jsonl"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Shadow(_Frozen):
    """A candidate version that sees a share of the traffic; its answers are compared, never returned."""

    version: int
    share: float = Field(gt=0, le=1)


class ServedModel(_Frozen):
    """What should be served under one name."""

    versions: tuple[int, ...] = Field(min_length=1)
    """Versions that can be asked for."""
    default: int
    """The version that answers when none is asked for."""
    is_pinned: bool = False
    """Whether the default stays when a newer version appears."""
    gate: str
    shadow: Shadow | None = None


class DesiredState(_Frozen):
    """What should be served, by name."""

    revision: int = 0
    configured_gate: str
    """The gate in the settings when this was written: a changed setting wins over an older admin call."""
    models: dict[str, ServedModel]

    def with_model(self, name: str, model: ServedModel | None) -> "DesiredState":
        """A copy in which `name` is as given, or gone."""
        models = {key: value for key, value in self.models.items() if key != name}
        if model is not None:
            models[name] = model
        return self.model_copy(update={"models": models})


def plan(models: Path, serve: tuple[str, ...], gate: str, previous: DesiredState | None) -> DesiredState:
    """The state to start with: what the settings ask for, what lies in the models directory, what an admin changed."""
    asked = [name.partition("@") for name in serve] or [(name, "", "") for name in bundles.names(models)]
    if not asked:
        raise SettingsError(f"no bundle lies in {models}; make one with: portcullis-train run --recipe digits")
    served = {}
    for name, _, pin in asked:
        known = bundles.versions(models, name)
        if not known or (pin and int(pin if pin.isdecimal() else 0) not in known):
            found = ", ".join(f"{n}@{v}" for n in bundles.names(models) for v in bundles.versions(models, n))
            raise SettingsError(f"no bundle {name}{'@' + pin if pin else ''} in {models}; there are: {found or 'none'}")
        before = previous.models.get(name) if previous else None
        served[name] = _planned(before, known, int(pin) if pin else None, gate)
        if before and previous and previous.configured_gate == gate:
            served[name] = served[name].model_copy(update={"gate": before.gate})
    return DesiredState(revision=previous.revision + 1 if previous else 0, configured_gate=gate, models=served)


def _planned(before: ServedModel | None, known: list[int], pin: int | None, gate: str) -> ServedModel:
    if pin is not None:
        return ServedModel(versions=(pin,), default=pin, is_pinned=True, gate=gate)
    kept = [version for version in before.versions if version in known] if before else []
    if before and before.is_pinned and before.default in known:
        return ServedModel(
            versions=tuple(sorted({*kept, before.default})), default=before.default, is_pinned=True, gate=gate
        )
    return ServedModel(versions=(known[-1],), default=known[-1], gate=gate)


class StateStore:
    """Reads and writes the desired state in the runtime directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / STATE_FILE

    def read(self) -> DesiredState | None:
        """The last whole state; none where there never was one."""
        for file in (self._file, self._directory / PREVIOUS_FILE):
            state = _parse(file)
            if state is not None:
                return state
        return None

    def stamp(self) -> tuple[int, int]:
        """Changes whenever the file does; cheap enough to ask several times a second."""
        try:
            status = self._file.stat()
        except OSError:
            return (0, 0)
        return (status.st_mtime_ns, status.st_ino)

    def write(self, state: DesiredState) -> None:
        """Replace the state atomically; the caller holds the lock."""
        body = state.model_dump(mode="json")
        draft = self._directory / f".{STATE_FILE}.{os.getpid()}"
        try:
            with draft.open("w") as stream:
                json.dump({"sha256": _digest(body), "state": body}, stream, indent=1)
                stream.flush()
                os.fsync(stream.fileno())
            if _parse(self._file) is not None:
                os.replace(self._file, self._directory / PREVIOUS_FILE)
            os.replace(draft, self._file)
        finally:
            draft.unlink(missing_ok=True)

    def change(self, edit: Callable[[DesiredState], DesiredState]) -> tuple[DesiredState, DesiredState]:
        """Read, edit and write under a lock that all processes share; gives the state before and after."""
        with self.lock():
            before = self.read()
            if before is None:
                raise RuntimeError("expected a desired state, which the supervisor writes before any worker starts")
            after = edit(before).model_copy(update={"revision": before.revision + 1})
            self.write(after)
        return before, after

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Only one process edits at a time; the kernel frees the lock of one that dies."""
        with (self._directory / LOCK_FILE).open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def audit(self, key_name: str, action: str, **details: Any) -> None:
        """One line for the record: when, whose key, what, from and to. Never the key itself."""
        entry = {"time": datetime.now(UTC).isoformat(), "key": key_name, "action": action, **details}
        with (self._directory / AUDIT_FILE).open("a") as stream:
            stream.write(json.dumps(entry) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def _parse(file: Path) -> DesiredState | None:
    try:
        content = json.loads(file.read_bytes())
        if content["sha256"] != _digest(content["state"]):
            return None
        return DesiredState.model_validate(content["state"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
