"""Looks after the instance's database while it runs: a damaged file is replaced by one with the state as it was."""

import logging
import threading

from portcullis.errors import DatabaseAway, DatabaseDamaged, StateNotWritten
from portcullis.processes.stores import make_anew
from portcullis.store.followers import Followed, Followers, read_workers
from portcullis.store.sqlite import Sqlite
from portcullis.store.state import READ_STATE, DesiredState, StateStore, parse

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
READ_LOOKS = 10
"""Of so many looks one reads from the file, whether anything was committed or not: that alone shows damage."""
CHECK_LOOKS = 200
"""Of so many one goes through the whole file."""
REVISION_LEAP = 1000
"""More changes than can have been made and followed since the last look before the damage."""


class Keeper:
    """A thread of the supervisor, which remembers the state as long as it lives."""

    def __init__(self, database: Sqlite, state: DesiredState, is_copy: bool = False) -> None:
        """`is_copy`: what counts is in the fleet's database, and the link copies it from there."""
        self._database, self._state, self._is_copy = database, state, is_copy
        self._store, self._followers = StateStore(database), Followers(database, "")
        self._workers: dict[int, Followed] = {}
        self._complaint: str | None = None
        self._num_looks = 0
        self._stamp: object = None

    def run(self, stopping: threading.Event) -> None:
        """Look now and then; outlives any failure."""
        while not stopping.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception:
                logger.exception("could not look after the database; trying again")
        self._database.close()

    def look(self) -> None:
        """Remember the state; where the file is damaged, or gone, write the state into another."""
        self._num_looks += 1
        try:
            stamp = self._database.stamp()
            if stamp != self._stamp or self._num_looks % READ_LOOKS == 0:
                self._remember()
                self._stamp = stamp
            if self._num_looks % CHECK_LOOKS == 0:
                self._database.create()
            self._complaint = None
        except DatabaseDamaged as error:
            self._mend(error)
        except (DatabaseAway, StateNotWritten) as error:
            if not self._database.file.exists():
                self._mend(DatabaseDamaged("the database has been removed"))
            elif str(error) != self._complaint:
                self._complaint = str(error)
                logger.error("%s", error)

    def _remember(self) -> None:
        with self._database.reading() as session:
            self._state = parse(session.run(READ_STATE)) or self._state
            self._workers = read_workers(session)

    def _mend(self, error: DatabaseDamaged) -> None:
        """With a revision that no worker has seen: every one takes it up, and says so in the new file.

        A copy keeps its revision: a worker that has come further stays there, and the link brings the rest.
        """
        make_anew(self._database, error)
        for slot, followed in self._workers.items():  # before the state: who changes that waits for them
            self._followers.confirm(slot, followed)
        if not self._is_copy:
            self._state = self._state.model_copy(update={"revision": self._state.revision + REVISION_LEAP})
        self._store.write(self._state)
