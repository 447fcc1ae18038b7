"""The link between an instance and its fleet's database: copies the state, passes on how far the workers have come.

One thread of the supervisor with one connection. Without the database everything goes on; it comes back by itself.
"""

import hashlib
import logging
import socket
import threading
from collections.abc import Callable

from portcullis.errors import DatabaseAway, DatabaseDamaged, ServiceError
from portcullis.store.database import Line
from portcullis.store.followers import Followed, NameTaken, beat, leave, read_workers
from portcullis.store.notes import LINK, note
from portcullis.store.pace import Pace
from portcullis.store.postgresql import Postgres, PostgresLine
from portcullis.store.schema import migrate
from portcullis.store.sqlite import Sqlite
from portcullis.store.state import READ_STATE, DesiredState, StateStore, parse

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.05


class FleetLink:
    """Runs until told to stop; outlives any failure."""

    def __init__(
        self,
        local: Sqlite,
        fleet: Postgres,
        instance: str,
        follows_state: bool = True,
        errand: Callable[[Line], None] = lambda line: None,
    ) -> None:
        """`errand`: what else is to be done over the connection once a second."""
        self._errand = errand
        self._name, self._home = instance, _home_of(local)
        self._local, self._fleet, self._instance, self._follows_state = local, fleet, instance, follows_state
        self._kept, self._wanted = StateStore(local), StateStore(fleet)
        self._is_connected: bool | None = None
        self._workers: dict[int, Followed] = {}
        self._stamp: object = None
        self._pace = Pace()
        self._has_tables = False
        self._complaint: str | None = None

    def prepare(self) -> None:
        """Make the tables where they are not as this service knows them."""
        migrate(self._fleet)
        self._has_tables = True

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self._follow(stopping)
            except DatabaseAway as error:
                self._has_tables = self._has_tables and not isinstance(error, DatabaseDamaged)
                self.tell(is_connected=False, cause=error)
            except Exception as error:
                logger.exception("the link to the database fails; trying again")
                self.tell(is_connected=False, cause=error)
            stopping.wait(self._pace.pause())
        self._leave()

    def _follow(self, stopping: threading.Event) -> None:
        """As long as one connection lasts. Another database may be behind it than before, an empty one even."""
        if not self._has_tables:
            self.prepare()
        with self._fleet.light_line() as line:
            line.listen()
            while not stopping.is_set():
                self._round(line)

    def tell(self, is_connected: bool, cause: Exception | None = None) -> None:
        """In the log once, and in the file for the metrics."""
        if is_connected == self._is_connected:
            return
        self._is_connected = is_connected
        if is_connected:
            logger.info("the fleet's database is reached")
        else:
            detail = (cause.__cause__ or cause) if cause is not None else "no answer"
            logger.error("the fleet's database is away: %s; serving on, changes are refused", detail)
        try:
            note(self._local, LINK, None if is_connected else "the fleet's database is away")
        except ServiceError as error:
            logger.error("cannot note that in the runtime directory: %s", error)

    def _round(self, line: PostgresLine) -> None:
        """Wait a moment for what is new, copy it; say how far we are when that changes, and about once a second."""
        is_due = self._pace.is_due()
        if line.wait(0 if is_due else LOOK_SECONDS) and not is_due:
            with line.at_once() as session:
                self._copy(parse(session.run(READ_STATE)))
        if self._is_new_of_workers() or is_due:
            self._beat(line)
        if is_due:
            self._run_errand(line)
            self._pace.has_beaten()

    def _beat(self, line: PostgresLine) -> None:
        try:
            with line.at_once() as session:
                wanted = beat(session, self._fleet.clock, self._name, self._workers, self._home)
        except NameTaken:  # the next word is under another
            self._name = f"{self._instance}-{self._home}"
            logger.error("another instance of the fleet is called %s; this one goes by %s", self._instance, self._name)
            return
        self.tell(is_connected=True)
        self._copy(wanted)

    def _run_errand(self, line: PostgresLine) -> None:
        """Whatever is wrong with it, the state is followed."""
        try:
            self._errand(line)
            self._complaint = None
        except DatabaseAway:
            raise
        except Exception as error:
            if str(error) != self._complaint:  # once, however often it is tried again
                logger.exception("could not tell the fleet what was counted; trying again")
            self._complaint = str(error)

    def _copy(self, wanted: DesiredState | None) -> None:
        """What the database says, into the file. What cannot be written now is tried at the next look."""
        if not self._follows_state:
            return
        try:
            kept = self._kept.read()
            if (kept is None and wanted is None) or wanted == kept:
                return
            if kept is None or (wanted is not None and wanted.revision > kept.revision):
                assert wanted is not None
                self._kept.write(wanted)
                return
        except ServiceError as error:
            logger.error("cannot copy the state into the runtime directory: %s", error)
            return
        what = "has no state" if wanted is None else f"went back behind revision {kept.revision}"
        logger.error("the fleet's database %s; following what it says, or writing what was known last", what)
        self._wanted.raise_above(kept.revision, kept)

    def _is_new_of_workers(self) -> bool:
        """Whether the workers have come further; where the file cannot be read, they have not."""
        try:
            stamp = self._local.stamp()
            if stamp == self._stamp:
                return False
            with self._local.reading() as session:
                workers = read_workers(session)
        except ServiceError:
            return False
        is_new, self._stamp, self._workers = workers != self._workers, stamp, workers
        return is_new

    def _leave(self) -> None:
        """With a last errand: what was counted until now is told."""
        try:
            with self._fleet.line() as line:
                self._run_errand(line)
                with line.writing() as session:
                    leave(session, self._fleet.clock, self._name)
        except ServiceError as error:
            logger.warning("cannot take leave of the fleet: %s", error)


def _home_of(local: Sqlite) -> str:
    """The directory that an instance has for itself: the same after a restart, another for any other."""
    place = local.file.parent.stat()
    return hashlib.sha256(f"{socket.gethostname()}:{place.st_dev}:{place.st_ino}".encode()).hexdigest()[:8]
