"""Worker processes: starts them, replaces those that die, passes signals on. Holds the socket, never a request."""

import fcntl
import json
import logging
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import IO

from service import devices, settings
from service.assignment import METRICS_DIRECTORY, RINGS_DIRECTORY, SHADOW_DIRECTORY, Assignment
from service.drift_watch import DriftWatch
from service.errors import PortcullisError, SettingsError
from service.metrics import DIRECTORY_VARIABLE
from service.metrics.files import forget_gauges
from service.planning import check, plan
from service.settings import Settings
from service.state import StateStore

logger = logging.getLogger(__name__)

BACKLOG = 2048
TICK_SECONDS = 0.5
SETTLED_SECONDS = 5.0
MAX_BACKOFF_SECONDS = 10.0
STOP_DRIFT_SECONDS = 2.0


@dataclass
class Slot:
    """A place for a worker; workers come and go, the slot and its counters stay."""

    number: int
    device_id: int | None
    process: "subprocess.Popen[bytes] | None" = None
    started: float = 0.0
    is_ready: bool = False
    num_quick_deaths: int = 0
    restart_at: float = 0.0
    output: bytearray = field(default_factory=bytearray)


def worker_devices(options: Settings, num_gpus: int, num_cores: int) -> list[int | None]:
    """The GPU of each worker, or none for the CPU: one a core on CPU, one a device on GPU, unless settings say else."""
    wants_gpu = options.providers != ("cpu",) and num_gpus > 0
    ids: list[int | None] = [*(options.device_ids or range(num_gpus))] if wants_gpu else [None]
    count = options.workers or (len(ids) if wants_gpu else num_cores)
    return [ids[i % len(ids)] for i in range(count)]


class Supervisor:
    """Runs until SIGTERM or SIGINT."""

    def __init__(self, options: Settings, on_ready: Callable[[str], None] = lambda address: None) -> None:
        self._options = options
        self._store = StateStore(options.runtime_directory)
        self._on_ready = on_ready
        self._directory = options.runtime_directory
        self._selector = selectors.DefaultSelector()
        self._is_stopping = False
        self._was_ready = False
        self._is_over = threading.Event()

    def run(self) -> int:
        """Serve; 0 after a clean stop."""
        with self._own_directory():
            self._prepare_directory()
            listener = bind(self._options.host, self._options.port)
            self._slots = [
                Slot(number, device)
                for number, device in enumerate(worker_devices(self._options, devices.num_gpus(), devices.num_cores()))
            ]
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
            watching = threading.Thread(target=self._drift().run, args=(self._is_over,), name="drift", daemon=True)
            watching.start()
            try:
                self._watch(listener)
            finally:
                listener.close()  # each worker closes its own when it has taken those who wait
                self._stop()
                self._is_over.set()
                watching.join(STOP_DRIFT_SECONDS)
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

    def _prepare_directory(self) -> None:
        shutil.rmtree(self._directory / METRICS_DIRECTORY, ignore_errors=True)
        for name in (METRICS_DIRECTORY, RINGS_DIRECTORY, SHADOW_DIRECTORY):
            (self._directory / name).mkdir(exist_ok=True)
        self._store.forget()
        with self._store.lock():
            state = plan(self._options.models, self._options.serve, self._options.gate, self._store.read())
            check(state, self._options)
            self._store.write(state)

    def _drift(self) -> DriftWatch:
        options = self._options
        return DriftWatch(
            options.models,
            self._directory,
            self._directory / RINGS_DIRECTORY,
            options.drift_window,
            options.drift_alarm_images,
        )

    # -- while they run ----------------------------------------------------------------------------------------------

    def _watch(self, listener: socket.socket) -> None:
        address = "http://{}:{}".format(*listener.getsockname()[:2])
        while not self._is_stopping:
            for slot in self._slots:
                self._keep_alive(slot, listener)
            for key, _ in self._selector.select(TICK_SECONDS):
                self._listen_to(key.data)
            if not self._was_ready and all(slot.is_ready for slot in self._slots):
                self._was_ready = True
                logger.info("ready on %s with %d workers", address, len(self._slots))
                self._on_ready(address)

    def _keep_alive(self, slot: Slot, listener: socket.socket) -> None:
        now = time.monotonic()
        if slot.process is not None and slot.process.poll() is not None:
            self._bury(slot, now)
        if slot.process is None and now >= slot.restart_at:
            self._start(slot, listener, now)

    def _start(self, slot: Slot, listener: socket.socket, now: float) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "service.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env=settings.child_environment(
                {DIRECTORY_VARIABLE: str((self._directory / METRICS_DIRECTORY).resolve()), "OMP_NUM_THREADS": "1"}
            ),
        )
        assert process.stdin is not None
        assignment = Assignment(self._options, slot.number, slot.device_id, listener.fileno(), not self._was_ready)
        process.stdin.write(assignment.to_json().encode() + b"\n")
        process.stdin.flush()
        slot.process, slot.started, slot.is_ready, slot.output = process, now, False, bytearray()
        self._selector.register(process.stdout, selectors.EVENT_READ, slot)  # type: ignore[arg-type]

    def _listen_to(self, slot: Slot) -> None:
        """A worker says one line: that it is ready, or why it cannot be."""
        assert slot.process is not None and slot.process.stdout is not None
        said = slot.process.stdout.read1(65536)  # type: ignore[attr-defined]
        if not said:
            self._selector.unregister(slot.process.stdout)
            return
        slot.output += said
        *lines, rest = bytes(slot.output).split(b"\n")
        slot.output = bytearray(rest)
        for line in lines:
            message = json.loads(line)
            slot.is_ready = bool(message.get("ready"))
            if "error" in message and not self._was_ready:
                raise PortcullisError(message["error"])
            if "error" in message:
                logger.error("worker %d cannot start: %s", slot.number, message["error"])

    def _bury(self, slot: Slot, now: float) -> None:
        """Forget what only a living worker can say, and plan its successor: at once, or later if they die young."""
        assert slot.process is not None
        logger.error("worker %d ended with status %s; starting another", slot.number, slot.process.returncode)
        if slot.process.stdout in self._selector.get_map():
            self._listen_to(slot)
        if slot.process.stdout in self._selector.get_map():
            self._selector.unregister(slot.process.stdout)  # type: ignore[arg-type]
        _close_pipes(slot.process)
        if not self._was_ready and not slot.is_ready:
            raise PortcullisError(f"worker {slot.number} died while starting; its log says why")
        died_young = not slot.is_ready or now - slot.started < SETTLED_SECONDS / 5
        slot.num_quick_deaths = slot.num_quick_deaths + 1 if died_young else 0
        backoff = min(MAX_BACKOFF_SECONDS, 0.1 * 2**slot.num_quick_deaths) if slot.num_quick_deaths > 1 else 0.0
        slot.process, slot.is_ready, slot.restart_at = None, False, now + backoff
        self._store.forget(slot.number)
        forget_gauges(self._directory / METRICS_DIRECTORY, slot.number)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True

    def _stop(self) -> None:
        """Ask every worker to drain; after the grace period, end it."""
        living = [slot.process for slot in self._slots if slot.process is not None]
        for process in living:
            process.terminate()
        end = time.monotonic() + self._options.grace_seconds + self._options.drain_seconds
        for process in living:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                logger.error("a worker did not stop within the grace period; ending it")
                process.kill()
                process.wait()
            _close_pipes(process)
        self._selector.close()


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


def _close_pipes(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
