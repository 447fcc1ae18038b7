"""Watches where bundles come from: a newer version that validates becomes the default, unless the name is pinned.

One that does not validate changes nothing; it is remembered with the reason, and not tried again until it changes.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from portcullis.bundle.sources.listing import Listing
from portcullis.bundle.sources.source import Source
from portcullis.errors import ServiceError, SourceAway
from portcullis.lifecycle.changes import Changes
from portcullis.store.durable import replace_durably
from portcullis.store.followers import Behind
from portcullis.store.state import DesiredState, StateStore

logger = logging.getLogger(__name__)

REFUSED_FILE = "refused.json"
WATCHER = "(watch)"
REACH_SECONDS = 10.0
"""How often a source is tried that was away at the start and is not watched."""


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
        self, source: Source, serve: tuple[str, ...], changes: Changes, store: StateStore, runtime: Path
    ) -> None:
        self._source, self._changes, self._store = source, changes, store
        self._serve = {name.partition("@")[0] for name in serve}
        self._file = runtime / REFUSED_FILE

    async def run(self, seconds: float) -> None:
        """Look every so often, with 0 only until the source is reached; outlives any failure."""
        while True:
            await asyncio.sleep(seconds or REACH_SECONDS)
            try:
                await self.scan(WATCHER)
                if not seconds:
                    return
            except SourceAway:  # said and counted where it was asked
                continue
            except Exception:
                logger.exception("could not watch the models directory; trying again")

    async def scan(self, who: str) -> Scan:
        """Try every newer version, the newest first; the first that validates becomes the default."""
        await self._changes.base()  # refuses where nothing may be changed
        listing = await asyncio.to_thread(self._source.look)
        newer = await asyncio.to_thread(self._newer_versions, listing)
        if newer is None:
            return Scan([], [], {})
        known = {(entry.model, entry.version): entry for entry in await asyncio.to_thread(self._refused, listing)}
        refused: list[RefusedVersion] = []
        adopted, behind = [], Behind()
        for name, versions in newer.items():
            for version in versions:
                outcome = known.get((name, version)) or await self._try(who, name, version, listing)
                if not isinstance(outcome, RefusedVersion):
                    adopted.append((name, version))
                    behind |= outcome
                    break
                refused.append(outcome)
        await asyncio.to_thread(self._remember, refused, listing)
        return Scan(adopted, refused, behind)

    def refused(self) -> list[RefusedVersion]:
        """Versions that were tried and did not validate, and have not changed since, as far as is known."""
        return self._refused(self._source.at_hand())

    def _refused(self, listing: Listing) -> list[RefusedVersion]:
        try:
            entries = _REFUSED_LIST.validate_json(self._file.read_bytes())
        except (OSError, ValidationError):
            return []
        return [entry for entry in entries if entry.stamp == listing.stamp(entry.model, entry.version)]

    def _newer_versions(self, listing: Listing) -> dict[str, list[int]] | None:
        """Versions newer than those that are served, the newest first, by name; None while there is no state."""
        state = self._store.at_hand()
        return None if state is None else {name: _newer(state, name, listing) for name in self._names(state, listing)}

    def _names(self, state: DesiredState, listing: Listing) -> list[str]:
        return [
            name
            for name in listing.names()
            if name not in state.unloaded and (not self._serve or name in self._serve or name in state.models)
        ]

    async def _try(self, who: str, name: str, version: int, listing: Listing) -> Behind | RefusedVersion:
        stamp = listing.stamp(name, version)
        await asyncio.to_thread(self._renew, name, version)
        try:
            behind = await self._changes.adopt(who, name, version)
            logger.info("adopted %s/%d from %s", name, version, self._source.place)
            return behind
        except SourceAway:  # it has not been seen yet: the next look tries it again
            raise
        except ServiceError as error:
            return RefusedVersion(model=name, version=version, reason=str(error), time=time.time(), stamp=stamp)

    def _renew(self, name: str, version: int) -> None:
        """Fetch anew what was refused and has changed; what is served beside the default stays as it is."""
        state = self._store.at_hand()
        model = state.models.get(name) if state is not None else None
        if model is None or version not in model.versions:
            self._source.renew(name, version)

    def _remember(self, refused: list[RefusedVersion], listing: Listing) -> None:
        if refused == self._refused(listing):
            return
        try:
            replace_durably(self._file, _REFUSED_LIST.dump_json(refused, indent=1).decode())
        except OSError as error:
            logger.error("cannot remember what was refused: %s", error.strerror)


def _newer(state: DesiredState, name: str, listing: Listing) -> list[int]:
    model = state.models.get(name)
    if model is not None and model.is_pinned:
        return []
    least = model.default if model is not None else 0
    return [version for version in reversed(listing.versions(name)) if version > least]
