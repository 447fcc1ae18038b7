"""A lane: one version of a model between a front and the engine process. Slots in memory that both map, records of a
few bytes on a Unix stream that say which slot holds what; the end of the stream is the end of the lane.
"""

import json
import mmap
import os
import socket
import struct
import threading
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from portcullis.bundle.manifest import Manifest
from portcullis.bundle.shift import Shifts

REQUEST = np.dtype("<u4")
"""A slot whose pixels are ready."""
ANSWER = np.dtype([("slot", "<u4"), ("status", "<u2"), ("num_run", "<u2"), ("seconds", "<f4")])
"""A slot whose answer is ready, or why there is none; the size that its batch was run at, and how long that took."""
OK, FAILED, OUT_OF_MEMORY = range(3)
MAX_LINE_BYTES = 65536
READ_BYTES = 65536
_ALIGNMENT = 64
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Hello:
    """What a front opens a lane with; the descriptor of the memory comes along."""

    bundle: str
    """Its directory."""
    num_slots: int


@dataclass(frozen=True)
class Facts:
    """What the engine process answers: on what the bundle runs."""

    asked: tuple[str, ...]
    providers: tuple[str, ...]
    refusals: tuple[str, ...]
    shifts: Shifts


@dataclass(frozen=True)
class Refused:
    """Or why it does not run."""

    code: str
    message: str


class Slots:
    """The memory of a lane: pixels and answers, a row each a slot."""

    def __init__(self, descriptor: int, manifest: Manifest, num_slots: int) -> None:
        image, self._num_labels = manifest.image, len(manifest.labels)
        shape, width = (num_slots, image.height, image.width, 3), self._num_labels + 1 + len(manifest.part_names)
        pixel_bytes = -int(np.prod(shape)) // _ALIGNMENT * -_ALIGNMENT
        total = pixel_bytes + num_slots * width * 4
        if os.fstat(descriptor).st_size < total:
            os.ftruncate(descriptor, total)  # a front makes it; the engine process finds it made
        memory = mmap.mmap(descriptor, total)
        self.pixels: NDArray[np.uint8] = np.frombuffer(memory, np.uint8, int(np.prod(shape))).reshape(shape)
        self._answers = np.frombuffer(memory, np.float32, num_slots * width, pixel_bytes).reshape(num_slots, width)

    def write_answers(self, slots: NDArray[Any], values: "tuple[NDArray[np.float32], ...]") -> None:
        """Probabilities (N, C), scores (N,) and parts (N, K) of so many slots."""
        probabilities, scores, parts = values
        self._answers[slots] = np.concatenate([probabilities, scores[:, None], parts], axis=1)

    def read_answers(self, slots: NDArray[Any]) -> "tuple[NDArray[np.float32], ...]":
        """The same again, as copies."""
        rows, num_labels = self._answers[slots], self._num_labels
        return rows[:, :num_labels], rows[:, num_labels], rows[:, num_labels + 1 :]


class Stream:
    """One end of a lane's stream, once its two lines are said: whole records, and never a wait."""

    def __init__(self, connection: socket.socket, incoming: np.dtype[Any]) -> None:
        self._connection, self._incoming, self._rest = connection, incoming, b""
        connection.setblocking(False)
        self.fileno = connection.fileno
        self._using = threading.Lock()  # one thread may send while another closes: the number may be another's by then

    def receive(self) -> NDArray[Any] | None:
        """Records that have come; None at the end of the lane."""
        try:
            came = self._connection.recv(READ_BYTES)
        except BlockingIOError:
            return np.empty(0, self._incoming)
        except OSError:
            return None
        if not came:
            return None
        came = self._rest + came
        whole = len(came) // self._incoming.itemsize * self._incoming.itemsize
        self._rest = came[whole:]
        return np.frombuffer(came[:whole], self._incoming)

    def send(self, records: bytes) -> None:
        """An OSError where nobody reads. What is under way is bounded by the number of slots, and fits the kernel's
        buffer many times over."""
        with self._using:
            sent = self._connection.send(records)
        if sent != len(records):
            raise OSError("the other side of a lane does not read")

    def close(self) -> None:
        with self._using:
            self._connection.close()


def say(connection: socket.socket, words: Hello | Facts | Refused, *descriptors: int) -> None:
    """One line of JSON, with descriptors."""
    line = json.dumps({"is": type(words).__name__, **asdict(words)}).encode() + b"\n"
    sent = socket.send_fds(connection, [line], descriptors)
    if sent < len(line):
        connection.sendall(line[sent:])


def hear(connection: socket.socket) -> tuple[Hello | Facts | Refused, list[int]]:
    """The line of the other side, with descriptors; an OSError where it has gone, a ValueError for nonsense."""
    line, descriptors = b"", list[int]()
    while not line.endswith(b"\n"):
        if len(line) > MAX_LINE_BYTES:
            raise ValueError("expected a line")
        part, received, _, _ = socket.recv_fds(connection, 1 if line else MAX_LINE_BYTES, 1)
        descriptors += received
        if not part:
            raise ConnectionResetError("the other side has gone")
        line += part
    fields = json.loads(line)
    kind = {"Hello": Hello, "Facts": Facts, "Refused": Refused}[fields.pop("is")]
    return TypeAdapter[Hello | Facts | Refused](kind).validate_python(fields), descriptors


def is_ours(connection: socket.socket) -> bool:
    """Whether a process of the same user is at the other end."""
    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(said)[1]) == os.getuid()
