"""Workers and engine processes: starts them, replaces those that die, passes signals on. Holds sockets, no request."""

import logging
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

from portcullis.bundle import devices
from portcullis.errors import PortcullisError, ServiceError
from portcullis.http.tls import certificate_of
from portcullis.processes.assignment import METRICS_DIRECTORY
from portcullis.processes.instance import Instance
from portcullis.processes.layout import Layout
from portcullis.processes.placement import Placement, place
from portcullis.processes.slot import Slot
from portcullis.processes.sockets import address_of, bind
from portcullis.settings import Settings
from portcullis.telemetry.files import forget_gauges

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.5
MANY_SHORT_LIVES = 3
GRIEFS = {"failed": "cannot start", "broken": "cannot go on"}


class Supervisor:
    """Runs until SIGTERM or SIGINT."""

    def __init__(self, options: Settings, on_ready: Callable[[str], None] = lambda address: None) -> None:
        self._options = options
        self._on_ready = on_ready
        self._selector = selectors.DefaultSelector()
        self._is_stopping = False
        self._was_ready = False

    def run(self) -> int:
        """Serve; 0 after a clean stop."""
        certificate_of(self._options.tls_certificate_file, self._options.tls_key_file)  # refuses what is no pair
        self._instance = instance = Instance(self._options)
        try:
            instance.prepare()
            self._options = instance.settings
            listener = bind(self._options.host, self._options.port)
            self._placement = self._place()
            self._layout = Layout(self._options, self._placement, devices.num_cores(), listener)
            self._slots = [
                Slot(number, role, self._placement, self._selector) for number, role in enumerate(self._layout.roles)
            ]
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
            instance.start()
            try:
                self._watch(listener)
            finally:
                listener.close()  # each worker closes its own when it has taken those who wait
                self._stop()
                instance.stop()
        finally:
            instance.close()
        return 0

    def _place(self) -> Placement:
        """Find out what this machine runs on; a signal meanwhile ends the trials and us."""
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        return place(self._options, self._instance.bundles())

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
            self._instance.forget_worker(slot.number)
            forget_gauges(self._options.runtime_directory / METRICS_DIRECTORY, slot.number)
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
