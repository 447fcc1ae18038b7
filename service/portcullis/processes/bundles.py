"""The source of an instance's bundles, as its settings name it, and what is told of how it goes."""

import contextlib

from portcullis.bundle.signatures import Trust
from portcullis.bundle.sources.cache import Key
from portcullis.bundle.sources.cached import Events
from portcullis.bundle.sources.opening import Keeping, source_of
from portcullis.bundle.sources.source import Source
from portcullis.errors import DatabaseAway, StateNotWritten
from portcullis.settings import Settings
from portcullis.store.database import Database
from portcullis.store.notes import SOURCE, note
from portcullis.store.state import StateStore
from portcullis.telemetry.instruments import Metrics

CACHE_DIRECTORY = "bundles"


def source_for(settings: Settings, store: StateStore, events: Events) -> Source:
    """Nothing is asked of it yet."""
    keeping = Keeping(
        settings.models_cache or settings.runtime_directory / CACHE_DIRECTORY,
        settings.models_cache_bytes,
        settings.max_bundle_bytes,
        settings.models_timeout_seconds,
    )
    return source_of(settings.models, keeping, Trust(settings.trusted_keys), lambda: _served(store), events)


def _served(store: StateStore) -> set[Key]:
    state = store.at_hand()
    models = state.models.items() if state is not None else ()
    return {(name, version) for name, model in models for version in model.versions}


def noting(database: Database) -> Events:
    """For the one process at a time that is answerable for it: whether the source is reached, for the metrics."""
    said: list[str | None] = []  # whatever was noted before, by whoever, is not known

    def say(complaint: str | None) -> None:
        if said == [complaint]:
            return
        with contextlib.suppress(DatabaseAway, StateNotWritten):  # the log says so; said again with the next look
            note(database, SOURCE, complaint)
            said[:] = [complaint]

    return Events(on_away=say, on_reached=lambda: say(None))


def counting(metrics: Metrics, inner: Events) -> Events:
    """The same, counted."""

    def on_away(complaint: str) -> None:
        metrics.source_failures.inc()
        inner.on_away(complaint)

    def on_fetched(num_bytes: int, seconds: float) -> None:
        metrics.source_fetched_bytes.inc(num_bytes)
        metrics.source_fetches.inc()

    return Events(on_away, inner.on_reached, on_fetched)
