"""A source elsewhere behind a cache on this machine. While it is away, what was fetched before can still be loaded."""

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from portcullis.bundle.files import Bundle
from portcullis.bundle.signatures import Trust
from portcullis.bundle.sources.cache import Cache, Key
from portcullis.bundle.sources.fetching import fetch
from portcullis.bundle.sources.listing import Entry, Listing
from portcullis.bundle.sources.remote import Remote
from portcullis.bundle.sources.source import load_as
from portcullis.errors import BundleError, PortcullisError, ServiceError, SourceAway

logger = logging.getLogger(__name__)

REPEAT_SECONDS = 5.0
"""How long a source that did not answer is taken to be away, where the cache will do."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""Errors of this machine; whatever else is an OSError, libraries raise for the source as well."""


@dataclass(frozen=True)
class Events:
    """Who wants to know how it goes; called on whatever thread asks the source."""

    on_away: Callable[[str], None] = lambda complaint: None
    on_reached: Callable[[], None] = lambda: None
    on_fetched: Callable[[int, float], None] = lambda num_bytes, seconds: None


@dataclass(frozen=True)
class _Pause:
    """After a fetch that failed: until when it is not tried again, and why."""

    error: ServiceError
    seconds: float
    until: float


class CachedSource:
    """One URL as one process sees it."""

    def __init__(
        self,
        remote: Callable[[], Remote],
        url: str,
        cache: Cache,
        trust: Trust,
        *,
        max_bundle_bytes: int,
        timeout_seconds: float,
        in_use: Callable[[], Collection[Key]] = tuple,
        events: Events | None = None,
    ) -> None:
        self._make_remote = remote
        self._remote: Remote | None = None
        self.place = url
        self.read_only = f"bundles come from {url}; pull one, use `portcullis calibrate`, and push the next version"
        self._cache, self._trust, self._in_use, self._events = cache, trust, in_use, events or Events()
        self._max_bundle_bytes, self._timeout_seconds = max_bundle_bytes, timeout_seconds
        self._pauses: dict[Key, _Pause] = {}
        self._asking: threading.Thread | None = None
        self._turn = threading.Lock()
        self._looked_at = self._failed_at = float("-inf")
        self._is_away = False

    # -- what is there -----------------------------------------------------------------------------------------------

    def look(self) -> Listing:
        listing = self._ask(lambda remote: remote.look())
        with contextlib.suppress(OSError):  # a full disk: the next look is as good
            self._cache.remember(listing)
        self._looked_at = time.monotonic()
        self._failed_at = float("-inf")
        self._pauses = {key: pause for key, pause in self._pauses.items() if not isinstance(pause.error, SourceAway)}
        return listing

    def listing(self, max_age_seconds: float = 0.0) -> Listing:
        now = time.monotonic()
        if now - self._looked_at < max_age_seconds:
            return self.at_hand()
        with contextlib.suppress(SourceAway):
            if now - self._failed_at >= REPEAT_SECONDS:
                return self.look()
        cached = self._cache.listing()
        found = ", ".join(f"{name}/{version}" for name in cached.names() for version in cached.versions(name))
        logger.warning("without %s what was fetched before counts: %s", self.place, found or "nothing")
        return cached

    def at_hand(self) -> Listing:
        return self._cache.remembered() or self._cache.listing()

    def _ask(self, question: Callable[[Remote], Listing]) -> Listing:
        """One question at a time, each on a thread of its own: a source that does not answer must keep nobody."""
        with contextlib.ExitStack() as stack:
            if not self._turn.acquire(timeout=self._timeout_seconds):
                raise self._away(TimeoutError("others have been asking for too long"))
            stack.callback(self._turn.release)
            return self._ask_alone(question)

    def _ask_alone(self, question: Callable[[Remote], Listing]) -> Listing:
        if self._asking is not None and self._asking.is_alive():
            raise self._away(TimeoutError("an earlier question is not answered yet"))
        outcome: list[Listing | Exception] = []
        remote = self._open()  # which may load a library: not the source's time

        def ask() -> None:
            try:
                outcome.append(question(remote))
            except Exception as error:
                outcome.append(error)

        self._asking = threading.Thread(target=ask, name="source", daemon=True)
        self._asking.start()
        self._asking.join(self._timeout_seconds)
        found = outcome[0] if outcome else TimeoutError(f"no answer within {self._timeout_seconds:g} s")
        if isinstance(found, PortcullisError):  # nothing that time mends: a library is missing, a manifest is nonsense
            raise found
        if isinstance(found, Exception):
            raise self._away(found) from found
        self._reached()
        return found

    def _open(self) -> Remote:
        if self._remote is None:
            self._remote = self._make_remote()
        return self._remote

    # -- one bundle --------------------------------------------------------------------------------------------------

    def load(self, name: str, version: int) -> Bundle:
        try:
            return self._load_cached(name, version)
        except BundleError as error:  # not here, rotten, or not signed when it was fetched
            self._raise_while_paused((name, version))
            refused = error if self._cache.path(name, version).is_dir() else None
        try:
            with self._cache.alone(name, version):
                try:  # another process may have fetched it meanwhile
                    return self._load_cached(name, version)
                except BundleError:
                    self._fetch(name, version)
                return self._load_cached(name, version)
        except OSError as error:
            raise BundleError(f"cannot keep bundle {name}/{version} in the cache: {error.strerror}") from error
        except SourceAway as error:
            raise refused or error from error

    def renew(self, name: str, version: int) -> None:
        entry = self.at_hand().find(name, version)
        self._pauses.pop((name, version), None)
        is_here = self._cache.path(name, version).is_dir()
        if not is_here or entry is None or self._cache.stamp(name, version) == entry.stamp:
            return
        try:
            with self._cache.alone(name, version):
                self._fetch(name, version)
        except (OSError, ServiceError) as error:
            logger.error("cannot fetch %s/%d anew: %s", name, version, error)

    def _load_cached(self, name: str, version: int) -> Bundle:
        path = self._cache.path(name, version)
        bundle = load_as(self._trust, path, name, version)
        self._cache.use(name, version)
        return bundle

    def _fetch(self, name: str, version: int) -> None:
        """Into the cache, under its lock; after a failure not again at once."""
        started, key = time.monotonic(), (name, version)
        try:
            entry = self._find(name, version)
            with self._cache.draft(name, version) as draft:
                self._download(entry, draft, name, version)
                size = sum(file.stat().st_size for file in draft.rglob("*") if file.is_file())
                self._cache.put(draft, name, version, entry.stamp)
        except ServiceError as error:
            self._pause(key, error)
            raise
        self._pauses.pop(key, None)
        seconds = time.monotonic() - started
        logger.info("fetched %s/%d from %s: %d bytes in %.1f s", name, version, self.place, size, seconds)
        self._events.on_fetched(size, seconds)
        self._cache.prune({*self._in_use(), key})

    def _find(self, name: str, version: int) -> Entry:
        listing = self.look()
        entry = listing.find(name, version)
        if entry is None:
            raise BundleError(f"no bundle {name}/{version} is at {self.place}")
        return entry

    def _download(self, entry: Entry, draft: Path, name: str, version: int) -> None:
        try:
            manifest = fetch(self._open(), entry.place, draft, self._trust, self._max_bundle_bytes)
        except FileNotFoundError:
            raise BundleError(f"bundle {name}/{version} has just gone from {self.place}") from None
        except BundleError as error:
            raise BundleError(f"bundle {name}/{version} at {self.place} is refused: {error}") from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
                raise
            raise self._away(error) from error
        if (manifest.name, manifest.version) != (name, version):
            raise BundleError(f"{self.place} has {manifest.name}/{manifest.version} where {name}/{version} is expected")

    # -- how it goes -------------------------------------------------------------------------------------------------

    def _raise_while_paused(self, key: Key) -> None:
        pause = self._pauses.get(key)
        if pause is not None and time.monotonic() < pause.until:
            raise pause.error

    def _pause(self, key: Key, error: ServiceError) -> None:
        before = self._pauses.get(key)
        seconds = FIRST_PAUSE_SECONDS if before is None else min(2 * before.seconds, LONGEST_PAUSE_SECONDS)
        self._pauses[key] = _Pause(error, seconds, time.monotonic() + seconds)

    def _away(self, error: Exception) -> SourceAway:
        """What went wrong at the source, counted; once in the log with all that its library said."""
        away = SourceAway(f"{self.place} cannot be reached: {type(error).__name__}")
        self._events.on_away(str(away))
        if not self._is_away:
            logger.error("%s; what is served goes on (%s)", away, " ".join(str(error).split())[:300])
        self._is_away, self._failed_at = True, time.monotonic()
        return away

    def _reached(self) -> None:
        if self._is_away:
            logger.info("%s is reached again", self.place)
        self._is_away = False
        self._events.on_reached()
