"""Who runs where on this machine: workers, and on a device the engine processes that they share.

Held by the supervisor, so that sockets and boards outlive any of them.
"""

import socket

from portcullis.answering.device import board
from portcullis.answering.device.board import Board
from portcullis.processes.assignment import DeviceLink
from portcullis.processes.placement import Placement, worker_engines
from portcullis.processes.slot import Role
from portcullis.settings import Settings

BACKLOG = 1024


class _Device:
    """What the processes of one device share."""

    def __init__(self, num_fronts: int) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("")  # the kernel finds a name; there is no file to be left behind
        self._listener.listen(BACKLOG)
        self.socket_descriptor = self._listener.fileno()
        self._board_descriptor = board.make(num_fronts)
        self.board = Board(self._board_descriptor)

    def link(self, front: int = 0) -> DeviceLink:
        return DeviceLink(self._listener.getsockname().hex(), self._board_descriptor, front)


class Layout:
    """The roles of all processes, workers first."""

    def __init__(self, settings: Settings, placement: Placement, num_cores: int, listener: socket.socket) -> None:
        engines = worker_engines(settings, placement, num_cores)
        self._devices = [_Device(engines.count(index)) for index in range(len(placement.devices))]
        self._taken = [0] * len(self._devices)
        workers = [
            Role("worker", index, listener.fileno(), link=None if engine is None else self._next_front(engine))
            for index, engine in enumerate(engines)
        ]
        self.roles = workers + [
            Role("engine", index, device.socket_descriptor, placement.devices[index], device.link())
            for index, device in enumerate(self._devices)
        ]
        self._engines = engines

    def forget(self, role: Role) -> None:
        """A process has died: what it had sent to a device is under way no more."""
        engine = self._engines[role.index] if role.kind == "worker" else None
        if engine is not None and role.link is not None:
            self._devices[engine].board.say_pending(role.link.front, 0)

    def _next_front(self, engine: int) -> DeviceLink:
        self._taken[engine] += 1
        return self._devices[engine].link(self._taken[engine] - 1)
