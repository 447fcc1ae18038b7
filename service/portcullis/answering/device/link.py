"""A front's way to the engine process of its device: opens lanes, and counts on the board what it has sent there."""

import os
import select
import socket
from dataclasses import dataclass, field

from portcullis.answering.admission import Line
from portcullis.answering.device.board import Board
from portcullis.answering.device.lane import ANSWER, Facts, Hello, Refused, Slots, Stream, hear, say
from portcullis.answering.served_engine import ImageJob
from portcullis.bundle.files import Bundle
from portcullis.errors import BundleError, EngineError

LOOK_SECONDS = 0.2
_ERRORS = {BundleError.code: BundleError}


@dataclass
class FrontLane:
    """The front's end of a lane."""

    facts: Facts
    stream: Stream
    slots: Slots
    free: list[int]
    """Slots that may be used; the last is taken first, so that memory is touched only where it is needed."""
    jobs: dict[int, ImageJob] = field(default_factory=dict)
    """By slot, what has been admitted and not answered."""


class Link:
    """One for each front."""

    def __init__(self, address: bytes, board: Board, front: int, num_slots: int) -> None:
        self._address, self._board, self._front, self._num_slots = address, board, front, num_slots
        self.num_sharing = board.num_fronts
        self._num_pending = 0
        self._is_closed = False
        board.say_pending(front, 0)

    def open(self, bundle: Bundle) -> FrontLane:
        """Have a bundle opened on the device, which may take minutes; keeps the calling thread."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        memory = os.memfd_create("portcullis-lane")
        try:
            connection.connect(self._address)
            slots = Slots(memory, bundle.manifest, self._num_slots)
            say(connection, Hello(str(bundle.path.resolve()), self._num_slots), memory)
            self._wait_for(connection)
            words, _ = hear(connection)
        except OSError as error:
            connection.close()
            raise EngineError("the engine's process has gone; another is started") from error
        finally:
            os.close(memory)
        if not isinstance(words, Facts):
            connection.close()
            assert isinstance(words, Refused)
            raise _ERRORS.get(words.code, EngineError)(words.message)
        return FrontLane(words, Stream(connection, ANSWER), slots, list(range(self._num_slots)))

    def close(self) -> None:
        """Open nothing more, and give up what is being opened: the process ends."""
        self._is_closed = True

    def line(self) -> Line:
        """Who stands before the device, from all fronts."""
        return self._board.line()

    def count(self, change: int) -> None:
        """So many more images are under way, or fewer; from the event loop only."""
        self._num_pending += change
        self._board.say_pending(self._front, self._num_pending)

    def waiting_of(self, num_pending: int) -> int:
        """How many of so many that are under way wait, if they run and wait like those of all fronts do."""
        line = self._board.line()
        return round(num_pending * line.num_waiting / max(1, line.num_waiting + line.num_running))

    def _wait_for(self, connection: socket.socket) -> None:
        while not select.select([connection], [], [], LOOK_SECONDS)[0]:
            if self._is_closed:
                raise ConnectionAbortedError("this process ends")
