"""Watches the models directory: a newer version that validates becomes the default, unless the name is pinned.

One that does not validate changes nothing; it is remembered with the reason, and not tried again until it changes.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from portcullis.bundle import files as bundles
from portcullis.bundle.files import MANIFEST_FILE, MODEL_FILE
from portcullis.errors import ServiceError
from portcullis.lifecycle.changes import Changes
from portcullis.store.durable import replace_durably
from portcullis.store.followers import Behind
from portcullis.store.state import DesiredState, StateStore

logger = logging.getLogger(__name__)

REFUSED_FILE = "refused.json"
WATCHER = "(watch)"


class RefusedVersion(BaseModel):
    """A version that lies in the models directory but does not validate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    version: int
    reason: str
    time: float
    stamp: str
    """What its files looked like: once they change it is tried again."""


_REFUSED_LIST = TypeAdapter(list[RefusedVersion])


@dataclass(frozen=True)
class Scan:
    """What one look at the models directory led to."""

    adopted: list[tuple[str, int]]
    refused: list[RefusedVersion]
    behind: Behind


class Watcher:
    """Looks for newer versions, when asked or every so often."""

    def __init__(
        self, models: Path, serve: tuple[str, ...], changes: Changes, store: StateStore, runtime: Path
    ) -> None:
        self._models, self._changes, self._store = models, changes, store
        self._serve = {name.partition("@")[0] for name in serve}
        self._file = runtime / REFUSED_FILE

    async def run(self, seconds: float) -> None:
        """Look every so often; outlives any failure."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.scan(WATCHER)
            except Exception:
                logger.exception("could not watch the models directory; trying again")

    async def scan(self, who: str) -> Scan:
        """Try every newer version, the newest first; the first that validates becomes the default."""
        await self._changes.base()  # refuses where nothing may be changed
        newer = await asyncio.to_thread(self._look)
        if newer is None:
            return Scan([], [], {})
        known = {(entry.model, entry.version): entry for entry in await asyncio.to_thread(self.refused)}
        refused: list[RefusedVersion] = []
        adopted, behind = [], Behind()
        for name, versions in newer.items():
            for version in versions:
                outcome = known.get((name, version)) or await self._try(who, name, version)
                if not isinstance(outcome, RefusedVersion):
                    adopted.append((name, version))
                    behind |= outcome
                    break
                refused.append(outcome)
        await asyncio.to_thread(self._remember, refused)
        return Scan(adopted, refused, behind)

    def refused(self) -> list[RefusedVersion]:
        """Versions that were tried and did not validate, and have not changed since."""
        try:
            entries = _REFUSED_LIST.validate_json(self._file.read_bytes())
        except (OSError, ValidationError):
            return []
        return [entry for entry in entries if entry.stamp == _stamp(self._models, entry.model, entry.version)]

    def _look(self) -> dict[str, list[int]] | None:
        """Versions newer than those that are served, the newest first, by name; None while there is no state."""
        state = self._store.at_hand()
        return None if state is None else {name: self._newer(state, name) for name in self._names(state)}

    def _names(self, state: DesiredState) -> list[str]:
        return [
            name
            for name in bundles.names(self._models)
            if name not in state.unloaded and (not self._serve or name in self._serve or name in state.models)
        ]

    def _newer(self, state: DesiredState, name: str) -> list[int]:
        model = state.models.get(name)
        if model is not None and model.is_pinned:
            return []
        least = model.default if model is not None else 0
        return [version for version in reversed(bundles.versions(self._models, name)) if version > least]

    async def _try(self, who: str, name: str, version: int) -> Behind | RefusedVersion:
        stamp = await asyncio.to_thread(_stamp, self._models, name, version)
        try:
            behind = await self._changes.adopt(who, name, version)
            logger.info("adopted %s/%d from the models directory", name, version)
            return behind
        except ServiceError as error:
            return RefusedVersion(model=name, version=version, reason=str(error), time=time.time(), stamp=stamp)

    def _remember(self, refused: list[RefusedVersion]) -> None:
        if refused == self.refused():
            return
        try:
            replace_durably(self._file, _REFUSED_LIST.dump_json(refused, indent=1).decode())
        except OSError as error:
            logger.error("cannot remember what was refused: %s", error.strerror)


def _stamp(models: Path, name: str, version: int) -> str:
    parts = []
    for file in (MANIFEST_FILE, MODEL_FILE):
        try:
            status = (models / name / str(version) / file).stat()
            parts.append(f"{status.st_mtime_ns}.{status.st_size}.{status.st_ino}")
        except OSError:
            parts.append("none")
    return "-".join(parts)
