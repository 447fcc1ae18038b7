"""A place for one process, worker or engine: the channel on which it speaks, and when the next may start.

Processes come and go, the slot and its counters stay.
"""

import contextlib
import os
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Literal

from portcullis.bundle.providers import device_environment
from portcullis.environment import child_environment
from portcullis.processes.assignment import METRICS_DIRECTORY, Assignment, DeviceLink
from portcullis.processes.control import ENGINE_BROKEN, Channel, Message
from portcullis.processes.placement import Placement
from portcullis.processes.restarts import Restarts
from portcullis.settings import Settings
from portcullis.telemetry.instruments import DIRECTORY_VARIABLE

STANDARD_ERROR = 2


@dataclass(frozen=True)
class Role:
    """What the processes of one place do."""

    kind: Literal["worker", "engine"]
    index: int
    """Among those of its kind."""
    socket_descriptor: int
    device: str | None = None
    link: DeviceLink | None = None

    @property
    def name(self) -> str:
        return f"{self.kind} {self.index}"


MODULES = {"worker": "portcullis.processes.worker", "engine": "portcullis.processes.engine"}


class Slot:
    """Starts, hears and buries the processes of one place."""

    def __init__(self, number: int, role: Role, placement: Placement, selector: selectors.BaseSelector) -> None:
        self.number, self.role, self._placement = number, role, placement
        self.process: subprocess.Popen[bytes] | None = None
        self._selector = selector
        self._channel: Channel | None = None
        self.restarts = Restarts()
        self.restart_at = 0.0
        self.last_words = "none; its log says more"
        """Why the process, or the one before, could not start or go on, as it said itself."""
        self._ready_since: float | None = None
        self.num_lives = 0

    @property
    def is_ready(self) -> bool:
        return self._ready_since is not None

    def start(self, options: Settings, is_first: bool) -> None:
        """Start a process. Where that cannot be, an OSError, and nothing is left behind."""
        ours, theirs = os.pipe()
        self._channel = Channel(ours)
        try:
            self._selector.register(self._channel, selectors.EVENT_READ, self)
            role = self.role
            assignment = Assignment(
                options, self.number, self._placement, role.device, role.socket_descriptor, theirs, is_first, role.link
            )
            boards = [role.link.board_descriptor] if role.link is not None else []
            process = subprocess.Popen(
                [sys.executable, "-m", MODULES[role.kind]],
                stdin=subprocess.PIPE,
                stdout=STANDARD_ERROR,  # where its log goes: what a library prints is for people, not for us
                pass_fds=[role.socket_descriptor, theirs, *boards],
                env=_environment(options, role.device),
            )
        except BaseException:
            self._hang_up()
            raise
        finally:
            os.close(theirs)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died already: the next look at it tells
            process.stdin.write(assignment.to_json().encode() + b"\n")
            process.stdin.flush()
        self.process, self._ready_since = process, None
        self.num_lives += 1

    def hear(self) -> list[Message]:
        """What the process has said of itself. After nonsense, a ValueError, nothing more is heard of it."""
        if self._channel is None:
            return []
        try:
            messages = self._channel.hear()
        except ValueError:
            self._hang_up()
            raise
        if messages is None:
            self._hang_up()
            return []
        for message in messages:
            if message.event == "ready":
                self._ready_since = time.monotonic()
            else:
                self.last_words = message.reason
        return messages

    def kill(self) -> None:
        """End the process; it is buried once it has ended."""
        if self.process is not None:
            self.process.kill()

    def bury(self, now: float) -> None:
        """Let go of a process that has ended, and plan the next: at once, or later if they die young."""
        self._hang_up()
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        ready_seconds = None if self._ready_since is None else now - self._ready_since
        is_broken = self.role.kind == "engine" or (
            self.process is not None and self.process.returncode == ENGINE_BROKEN
        )
        self.restart_at = now + self.restarts.pause_seconds(ready_seconds, is_broken)
        self.process, self._ready_since = None, None

    def _hang_up(self) -> None:
        if self._channel is not None:
            with contextlib.suppress(KeyError):  # it could not even be registered
                self._selector.unregister(self._channel)
            self._channel.close()
            self._channel = None


def _environment(options: Settings, device: str | None) -> dict[str, str]:
    metrics = (options.runtime_directory / METRICS_DIRECTORY).resolve()
    own_device = device_environment(device, options.gpu_tf32)
    return child_environment({DIRECTORY_VARIABLE: str(metrics), "OMP_NUM_THREADS": "1", **own_device})
