"""What is served, as a document says it that others manage: a file from Git, say. It is followed and never written."""

import json
import logging
import threading
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from portcullis.bundle.sources.source import Source
from portcullis.errors import PortcullisError, ServiceError, SettingsError
from portcullis.lifecycle.first_state import check
from portcullis.settings import Settings
from portcullis.store.notes import DOCUMENT, note
from portcullis.store.sqlite import Sqlite
from portcullis.store.state import DesiredState, ServedModel, Shadow, StateStore

logger = logging.getLogger(__name__)

SCHEME = "file:"
WRITER = "(document)"
LOOK_SECONDS = 0.5
MAX_LISTING_AGE_SECONDS = 30.0
"""Of what a source elsewhere was last seen to have, where the document leaves the version open."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Candidate(_Part):
    """A version in the shadow."""

    version: int = Field(ge=1)
    share: float = Field(gt=0, le=1)


class Wanted(_Part):
    """One name."""

    default: int | None = Field(None, ge=1)
    """The version that answers; none: the newest when the document is read."""
    loaded: tuple[int, ...] = ()
    gate: str | None = None
    """None: the gate of the settings."""
    shadow: Candidate | None = None


class Document(_Part):
    """The whole of it."""

    models: dict[str, Wanted]


def read_document(file: Path) -> Document:
    """TOML where the name ends so, JSON otherwise; whatever is wrong is said with the place."""
    try:
        text = file.read_text()
        content = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
        return Document.model_validate(content)
    except OSError as error:
        raise SettingsError(f"the document {file.name} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        raise SettingsError(f"the document {file.name} is refused: {problems}") from None
    except ValueError as error:
        raise SettingsError(f"the document {file.name} is refused: {error}") from None


def state_of(document: Document, options: Settings, previous: DesiredState | None, source: Source) -> DesiredState:
    """The desired state that a document asks for."""
    revision = previous.revision + 1 if previous else 0
    return DesiredState(
        revision=revision,
        configured_gate=options.gate,
        configured_serve=options.serve,
        models={name: _served(name, wanted, options, previous, source) for name, wanted in document.models.items()},
    )


def _served(name: str, wanted: Wanted, options: Settings, previous: DesiredState | None, source: Source) -> ServedModel:
    default = wanted.default or max(source.listing(MAX_LISTING_AGE_SECONDS).versions(name), default=None)
    if default is None:
        raise SettingsError(f"the document names the model {name!r}, of which no bundle is there")
    before = previous.models.get(name) if previous else None
    shadow = None
    if wanted.shadow is not None:
        is_same = before is not None and before.shadow is not None and before.shadow.version == wanted.shadow.version
        known = before.shadow.session if before and before.shadow and is_same else None
        session = known if known is not None else (previous.revision + 1 if previous else 0)
        shadow = Shadow(version=wanted.shadow.version, share=wanted.shadow.share, session=session)
    return ServedModel(
        default=default, loaded=wanted.loaded, is_pinned=True, gate=wanted.gate or options.gate, shadow=shadow
    )


class DocumentFollower:
    """A thread of the supervisor; a document that is refused changes nothing, and says why."""

    def __init__(self, database: Sqlite, options: Settings, source: Source) -> None:
        assert options.state is not None
        self._file = Path(options.state.removeprefix(SCHEME))
        self._database, self._options, self._store = database, options, StateStore(database)
        self._source = source
        self._complaint: str | None = None

    def begin(self) -> DesiredState:
        """The state to start with: the document's, or the last that was accepted where it is refused now."""
        self.look()
        state = self._store.read()
        if state is None:
            raise SettingsError(self._complaint or "the document says nothing")
        return state

    def run(self, stopping: threading.Event) -> None:
        """Look now and then; outlives any failure."""
        while not stopping.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception:
                logger.exception("could not look at the document; trying again")

    def look(self) -> None:
        """Take up what the document says, if that is new and can be served."""
        try:
            previous = self._store.read()
            wanted = state_of(read_document(self._file), self._options, previous, self._source)
            if previous is None or wanted.models != previous.models:
                check(wanted, self._options, self._source)
                self._take_up(wanted, previous)
        except PortcullisError as error:
            self._say(str(error))
        else:
            self._say(None)

    def _take_up(self, wanted: DesiredState, previous: DesiredState | None) -> None:
        if previous is None:
            self._store.write(wanted)
        else:
            self._store.change(lambda _: wanted, WRITER, "document")
        logger.info("following revision %d of what the document says", wanted.revision)

    def _say(self, complaint: str | None) -> None:
        """Once in the log, and for the metrics for as long as it stands."""
        if complaint == self._complaint:
            return
        self._complaint = complaint
        if complaint is not None:
            logger.error("%s; serving on as before", complaint)
        try:
            note(self._database, DOCUMENT, complaint)
        except ServiceError as error:
            logger.error("cannot note that in the runtime directory: %s", error)
