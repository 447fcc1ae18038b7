"""One instance, whatever processes it is made of: its runtime directory, its databases, what it does beside serving.

Beside the workers run, on threads of their own: the link to the fleet's database, the document that says what is
served, the watch over the instance's own database, and drift.
"""

import fcntl
import shutil
from pathlib import Path
from typing import IO

from portcullis.bundle.files import laid_out
from portcullis.bundle.sources.opening import is_url
from portcullis.drift.fleet import FleetEvidence
from portcullis.drift.watcher import DriftWatch
from portcullis.errors import DatabaseAway, DirectoryTaken, SettingsError
from portcullis.lifecycle.document import DocumentFollower
from portcullis.lifecycle.first_state import begin
from portcullis.processes.assignment import (
    METRICS_DIRECTORY,
    MODELS_DIRECTORY,
    RINGS_DIRECTORY,
    SHADOW_DIRECTORY,
)
from portcullis.processes.beside import Beside
from portcullis.processes.bundles import noting, source_for
from portcullis.processes.keeping import Keeper
from portcullis.processes.stores import name_of, open_local, stores_of
from portcullis.settings import Settings
from portcullis.store.fleet_link import FleetLink
from portcullis.store.followers import Followers
from portcullis.store.postgresql import Postgres
from portcullis.store.state import DesiredState, StateStore


class Instance:
    """Owns its runtime directory from here to `close`; then `prepare`, `start`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._directory = settings.runtime_directory
        self._lock = self._own_directory()
        self._beside = Beside()
        self._evidence: FleetEvidence | None = None

    def prepare(self) -> None:
        """Make the directory and the databases ready, and agree with others on the desired state."""
        shutil.rmtree(self._directory / METRICS_DIRECTORY, ignore_errors=True)
        for name in (METRICS_DIRECTORY, RINGS_DIRECTORY, SHADOW_DIRECTORY):
            (self._directory / name).mkdir(exist_ok=True)
        models = self.settings.models
        if not is_url(models):
            models = str(laid_out(Path(models), self._directory / MODELS_DIRECTORY))
        self.settings = self.settings.model_copy(update={"models": models, "instance": name_of(self.settings)})
        self._state = self._open_stores()

    def bundles(self) -> list[Path]:
        """What the desired state names, on this machine's disk."""
        keys = [(name, version) for name, model in self._state.models.items() for version in model.versions]
        return [self._source.load(*key).path for key in keys]

    def start(self) -> None:
        """Begin what runs beside the workers."""
        is_copy = self._stores.fleet is not None and self.settings.state is None
        self._beside.add("keeper", Keeper(self._stores.local, self._state, is_copy).run)
        self._beside.add("drift", self._drift().run)
        self._beside.start()

    def forget_worker(self, slot: int) -> None:
        """One has died: nobody waits for it any more."""
        self._followers.forget(slot)

    def stop(self) -> None:
        """End what runs beside the workers, once they have gone."""
        self._beside.stop()

    def close(self) -> None:
        """Let go of the directory."""
        self._lock.close()

    def _own_directory(self) -> IO[str]:
        """One instance a runtime directory; the kernel frees the lock of one that dies."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            lock = (self._directory / "supervisor.lock").open("w")
        except OSError as error:
            raise SettingsError(f"cannot use the runtime directory {self._directory}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise DirectoryTaken(f"another Portcullis runs on the runtime directory {self._directory}") from None
        return lock

    def _open_stores(self) -> DesiredState:
        self._stores = stores_of(self.settings)
        open_local(self._stores.local)
        self._followers = Followers(self._stores.local, self.settings.instance or "")
        self._followers.forget()
        local, fleet = self._stores.local, self._stores.fleet
        self._source = source_for(self.settings, StateStore(local), noting(local))
        if fleet is not None:
            self._beside.add("link", self._reach(fleet).run)
        if self.settings.state is not None:
            document = DocumentFollower(local, self.settings, self._source)
            self._beside.add("document", document.run)
            return document.begin()
        return begin(StateStore(local), StateStore(fleet) if fleet else None, self.settings, self._source)

    def _reach(self, fleet: Postgres) -> FleetLink:
        """Make the tables of a fleet; where its database is away, say so and go on."""
        settings, instance = self.settings, self.settings.instance or ""
        self._evidence = FleetEvidence(instance, fleet.clock, settings.drift_alarm_images)
        link = FleetLink(self._stores.local, fleet, instance, settings.state is None, self._evidence.visit)
        try:
            link.prepare()
        except DatabaseAway as error:
            link.tell(is_connected=False, cause=error)
        return link

    def _drift(self) -> DriftWatch:
        settings = self.settings
        return DriftWatch(
            self._source,
            self._stores.local,
            self._directory / RINGS_DIRECTORY,
            settings.drift_window,
            settings.drift_alarm_images,
            self._evidence,
        )
