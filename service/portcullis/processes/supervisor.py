"""Workers and engine processes: starts them, replaces those that die, passes signals on. Holds sockets, no request."""

import fcntl
import logging
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO

from portcullis.bundle import devices
from portcullis.bundle.files import laid_out
from portcullis.bundle.sources.opening import is_url
from portcullis.drift.fleet import FleetEvidence
from portcullis.drift.watcher import DriftWatch
from portcullis.errors import DatabaseAway, PortcullisError, ServiceError, SettingsError
from portcullis.http.tls import certificate_of
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
from portcullis.processes.layout import Layout
from portcullis.processes.placement import Placement, place
from portcullis.processes.slot import Slot
from portcullis.processes.stores import name_of, open_local, stores_of
from portcullis.settings import Settings
from portcullis.store.fleet_link import FleetLink
from portcullis.store.followers import Followers
from portcullis.store.postgresql import Postgres
from portcullis.store.state import DesiredState, StateStore
from portcullis.telemetry.files import forget_gauges

logger = logging.getLogger(__name__)

BACKLOG = 2048
TICK_SECONDS = 0.5
MANY_SHORT_LIVES = 3
GRIEFS = {"failed": "cannot start", "broken": "cannot go on"}


class Supervisor:
    """Runs until SIGTERM or SIGINT."""

    def __init__(self, options: Settings, on_ready: Callable[[str], None] = lambda address: None) -> None:
        self._options = options
        self._on_ready = on_ready
        self._directory = options.runtime_directory
        self._selector = selectors.DefaultSelector()
        self._is_stopping = False
        self._was_ready = False
        self._beside = Beside()
        self._evidence: FleetEvidence | None = None

    def run(self) -> int:
        """Serve; 0 after a clean stop."""
        certificate_of(self._options.tls_certificate_file, self._options.tls_key_file)  # refuses what is no pair
        with self._own_directory():
            state = self._prepare_directory()
            listener = bind(self._options.host, self._options.port)
            self._placement = self._place(state)
            self._layout = Layout(self._options, self._placement, devices.num_cores(), listener)
            self._slots = [
                Slot(number, role, self._placement, self._selector) for number, role in enumerate(self._layout.roles)
            ]
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
            self._start_beside(state)
            try:
                self._watch(listener)
            finally:
                listener.close()  # each worker closes its own when it has taken those who wait
                self._stop()
                self._beside.stop()
        return 0

    # -- before the workers ------------------------------------------------------------------------------------------

    def _own_directory(self) -> IO[str]:
        """One supervisor a runtime directory; the kernel frees the lock of one that dies."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            lock = (self._directory / "supervisor.lock").open("w")
        except OSError as error:
            raise SettingsError(f"cannot use the runtime directory {self._directory}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise SettingsError(f"another Portcullis runs on the runtime directory {self._directory}") from None
        return lock

    def _prepare_directory(self) -> DesiredState:
        shutil.rmtree(self._directory / METRICS_DIRECTORY, ignore_errors=True)
        for name in (METRICS_DIRECTORY, RINGS_DIRECTORY, SHADOW_DIRECTORY):
            (self._directory / name).mkdir(exist_ok=True)
        models = self._options.models
        if not is_url(models):
            models = str(laid_out(Path(models), self._directory / MODELS_DIRECTORY))
        self._options = self._options.model_copy(update={"models": models, "instance": name_of(self._options)})
        return self._open_stores()

    def _open_stores(self) -> DesiredState:
        self._stores = stores_of(self._options)
        open_local(self._stores.local)
        self._followers = Followers(self._stores.local, self._options.instance or "")
        self._followers.forget()
        local, fleet = self._stores.local, self._stores.fleet
        self._source = source_for(self._options, StateStore(local), noting(local))
        if fleet is not None:
            self._beside.add("link", self._reach(fleet).run)
        if self._options.state is not None:
            document = DocumentFollower(local, self._options, self._source)
            self._beside.add("document", document.run)
            return document.begin()
        return begin(StateStore(local), StateStore(fleet) if fleet else None, self._options, self._source)

    def _reach(self, fleet: Postgres) -> FleetLink:
        """Make the tables of a fleet; where its database is away, say so and go on."""
        options, instance = self._options, self._options.instance or ""
        self._evidence = FleetEvidence(instance, fleet.clock, options.drift_alarm_images)
        link = FleetLink(self._stores.local, fleet, instance, options.state is None, self._evidence.visit)
        try:
            link.prepare()
        except DatabaseAway as error:
            link.tell(is_connected=False, cause=error)
        return link

    def _place(self, state: DesiredState) -> Placement:
        """Find out what this machine runs on; a signal meanwhile ends the trials and us."""
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        keys = [(name, version) for name, model in state.models.items() for version in model.versions]
        return place(self._options, [self._source.load(*key).path for key in keys])

    def _start_beside(self, state: DesiredState) -> None:
        is_copy = self._stores.fleet is not None and self._options.state is None
        self._beside.add("keeper", Keeper(self._stores.local, state, is_copy).run)
        self._beside.add("drift", self._drift().run)
        self._beside.start()

    def _drift(self) -> DriftWatch:
        options = self._options
        return DriftWatch(
            self._source,
            self._stores.local,
            self._directory / RINGS_DIRECTORY,
            options.drift_window,
            options.drift_alarm_images,
            self._evidence,
        )

    # -- while they run ----------------------------------------------------------------------------------------------

    def _watch(self, listener: socket.socket) -> None:
        address = address_of(listener, is_secure=self._options.tls_certificate_file is not None)
        while not self._is_stopping:
            for slot in self._slots:
                self._keep_alive(slot)
            for key, _ in self._selector.select(TICK_SECONDS):
                self._listen_to(key.data)
            if not self._was_ready and all(slot.is_ready for slot in self._slots):
                self._was_ready = True
                count = sum(slot.role.kind == "worker" for slot in self._slots)
                logger.info("ready on %s with %d workers on %s", address, count, self._placement.provider)
                self._on_ready(address)

    def _keep_alive(self, slot: Slot) -> None:
        now = time.monotonic()
        if slot.process is not None and slot.process.poll() is not None:
            self._bury(slot, slot.process.returncode, now)
        if slot.process is None and now >= slot.restart_at:
            self._start(slot, now)

    def _start(self, slot: Slot, now: float) -> None:
        """A process that cannot be started, for want of memory or of descriptors, costs itself only."""
        try:
            slot.start(self._options, is_first=not self._was_ready)
        except OSError as error:
            slot.bury(now)
            pause = slot.restart_at - now
            logger.error("%s cannot be started: %s; again in %.1f s", slot.role.name, error.strerror, pause)

    def _listen_to(self, slot: Slot) -> None:
        try:
            messages = slot.hear()
        except ValueError as error:
            logger.error("%s says nonsense on its control channel; ending it: %s", slot.role.name, error)
            slot.kill()
            return
        for message in messages:
            if message.event == "failed" and not self._was_ready:
                raise PortcullisError(message.reason)
            if message.event != "ready":
                logger.error("%s %s: %s", slot.role.name, GRIEFS[message.event], message.reason)

    def _bury(self, slot: Slot, status: int, now: float) -> None:
        """Hear the last words of a dead process, then forget what only a living one can say."""
        self._listen_to(slot)
        if not self._was_ready and not slot.is_ready:
            raise PortcullisError(f"{slot.role.name} died while starting; its log says why")
        slot.bury(now)
        self._layout.forget(slot.role)
        name, count = slot.role.name, slot.restarts.num_short
        logger.error("%s ended with status %d; another in %.1f s", name, status, slot.restart_at - now)
        if slot.role.kind == "engine" and slot.num_lives > 1 and count:
            raise PortcullisError(f"{name} has failed again on device {slot.role.device}: {slot.last_words}")
        if count >= MANY_SHORT_LIVES:
            logger.critical("%s has failed %d times in a row; its last words: %s", name, count, slot.last_words)
        try:
            self._followers.forget(slot.number)
            forget_gauges(self._directory / METRICS_DIRECTORY, slot.number)
        except (OSError, ServiceError) as error:  # its successor overwrites both
            logger.error("cannot tidy up after %s: %s", name, error)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True

    def _stop(self) -> None:
        """Ask every worker to drain, then the engine processes that they use; after the grace period, end them."""
        end = time.monotonic() + self._options.grace_seconds + self._options.drain_seconds
        for kind in ("worker", "engine"):
            self._stop_all([slot for slot in self._slots if slot.role.kind == kind], end)
        self._selector.close()

    def _stop_all(self, slots: list[Slot], end: float) -> None:
        living = [(slot, slot.process) for slot in slots if slot.process is not None]
        for _, process in living:
            process.terminate()
        for slot, process in living:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                logger.error("%s did not stop within the grace period; ending it", slot.role.name)
                process.kill()
                process.wait()
            slot.bury(end)


def address_of(listener: socket.socket, is_secure: bool) -> str:
    """Where the service is found, as a client writes it."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if is_secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def bind(host: str, port: int) -> socket.socket:
    """The socket that all workers share."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    listener.listen(BACKLOG)
    return listener
