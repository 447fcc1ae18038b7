"""The databases of an instance: the file in its runtime directory, and its fleet's where it is part of one."""

import hashlib
import logging
import socket
from dataclasses import dataclass
from pathlib import Path

from portcullis.bundle.sources.opening import is_url
from portcullis.errors import DatabaseAway, DatabaseDamaged, StateNotWritten
from portcullis.settings import Settings
from portcullis.store.database import Database
from portcullis.store.notes import DOCUMENT, LINK, SOURCE, read_notes
from portcullis.store.postgresql import Postgres
from portcullis.store.schema import migrate
from portcullis.store.sqlite import DAMAGED, Sqlite
from portcullis.store.state import READ_STATE, parse
from portcullis.telemetry.collectors import StoreReading

logger = logging.getLogger(__name__)

DATABASE_FILE = "store.db"


@dataclass(frozen=True)
class Stores:
    """Where an instance keeps what it must not forget."""

    local: Sqlite
    fleet: Postgres | None

    @property
    def shared(self) -> Database:
        """What counts: the fleet's where there is one."""
        return self.fleet or self.local


def stores_of(settings: Settings) -> Stores:
    """The databases that the settings name; nothing is opened yet."""
    fleet = None if settings.database is None else Postgres(settings.database.get_secret_value())
    return Stores(Sqlite(settings.runtime_directory / DATABASE_FILE), fleet)


def reading_of(stores: Stores, settings: Settings, revision: int) -> StoreReading:
    """How they are, for the metrics."""
    try:
        notes = read_notes(stores.local)
    except (DatabaseAway, StateNotWritten):  # the log says so, and the file is moved aside or made free
        notes = {}
    aside = stores.local.file.parent.glob(f"{DATABASE_FILE}{DAMAGED}*[0-9]")
    return StoreReading(
        revision=revision,
        is_connected=None if stores.fleet is None else LINK not in notes,
        num_damaged=len(list(aside)),
        is_document_refused=None if settings.state is None else DOCUMENT in notes,
        is_source_reached=SOURCE not in notes if is_url(settings.models) else None,
    )


def open_local(database: Sqlite) -> bool:
    """Make the file and its tables; one that is damaged, or has a state that nobody here understands, is moved aside.
    Whether it was."""
    try:
        database.create()
        migrate(database)
        parse(database.read(READ_STATE))
    except DatabaseDamaged as error:
        make_anew(database, error)
        return True
    return False


def make_anew(database: Sqlite, cause: DatabaseDamaged) -> None:
    """Put a damaged file aside, where a person finds it and the metrics count it, and begin another."""
    aside = database.set_aside()
    logger.critical("%s; it was moved to %s, and another is begun", cause, aside.name)
    database.create()
    migrate(database)


def name_of(settings: Settings) -> str:
    """The instance's name: as set, or one that no other machine and no other runtime directory has."""
    if settings.instance is not None:
        return settings.instance
    host = socket.gethostname()
    place = f"{host}:{Path(settings.runtime_directory).resolve()}"
    return f"{host}-{hashlib.sha256(place.encode()).hexdigest()[:4]}"
