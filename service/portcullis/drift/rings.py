"""Rings of recent scores: one file a worker in the runtime directory, written by it and read by any process.

A ring must never hurt an answer. Writing is one copy into mapped memory; reading uses plain file reads, since a
mapped file that someone cuts short ends the process. Every record carries its sequence number and a check word over
all of it, so a record half written (read too early, or its writer killed) is not seen at all, whatever the order in
which its bytes came. A file that is absent, cut short or foreign reads as empty and is made anew by its writer.
"""

import contextlib
import hashlib
import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DEFAULT_CAPACITY = 65_536
MAX_CAPACITY = 16 * 1024 * 1024
MAGIC = b"PCRING\x00\x01"  # the last byte is the version of the layout
_HEADER = struct.Struct("<8sQ48x")  # magic, capacity
_PAYLOAD = struct.Struct("<QQdffHB5x")  # sequence, model key, seconds, score, p-value, class index, outcome
_WORDS = struct.Struct("<5Q")  # the same bytes as numbers
_CHECK = struct.Struct("<Q")
_SALT = 0x9E3779B97F4A7C15  # a record of zeros must not check
ACCEPTED, STRANGER, UNSURE = range(3)
"""What became of an image: accepted, or rejected by one rule or the other."""
RECORD = np.dtype(
    {
        "names": ["sequence", "model_key", "time", "score", "p_value", "class_index", "outcome", "check"],
        "formats": ["<u8", "<u8", "<f8", "<f4", "<f4", "<u2", "<u1", "<u8"],
        "offsets": [0, 8, 16, 24, 28, 32, 34, 40],
        "itemsize": 48,
    }
)


def model_key(name: str, version: int, part: str | None = None) -> int:
    """64 bits that stand for a model, and for the part that gates in its score's place, wherever and whenever."""
    words = f"{name}/{version}" if part is None else f"{name}/{version}/{part}"
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little")


def ring_path(directory: Path, slot: int) -> Path:
    """The ring of the worker in this slot; a worker that replaces another goes on with its ring."""
    return directory / f"scores-{slot}.ring"


def find_rings(directory: Path) -> list["RingReader"]:
    """Readers of all rings in the runtime directory, in order of slot names."""
    return [RingReader(path) for path in sorted(directory.glob("scores-*.ring"))]


class RingWriter:
    """The one writer of a ring, in one thread. Where no file can be had it goes on without: see `is_shared`."""

    def __init__(self, path: Path, capacity: int = DEFAULT_CAPACITY) -> None:
        if not 1 <= capacity <= MAX_CAPACITY:
            raise ValueError(f"expected a ring capacity of 1 to {MAX_CAPACITY}, got {capacity}")
        self._capacity = capacity
        records = RingReader(path).latest(1)
        self._sequence = int(records["sequence"][-1]) if len(records) else 0
        self.num_dropped = 0
        """Records that do not fit the layout, such as a class index beyond 65,535."""
        try:
            self._memory, self.is_shared = _map_file(path, capacity), True
        except OSError:  # such as a full disk: nobody reads this ring, the answers go on
            self._memory, self.is_shared = mmap.mmap(-1, _num_bytes(capacity)), False

    def append(
        self, model_key: int, time_seconds: float, score: float, p_value: float, class_index: int, outcome: int
    ) -> None:
        """Record one answer; `time_seconds` is the wall clock's, which processes share."""
        sequence = self._sequence + 1
        try:
            payload = _PAYLOAD.pack(sequence, model_key, time_seconds, score, p_value, class_index, outcome)
        except (struct.error, OverflowError):
            self.num_dropped += 1
            return
        a, b, c, d, e = _WORDS.unpack(payload)
        start = _HEADER.size + sequence % self._capacity * RECORD.itemsize
        self._memory[start : start + RECORD.itemsize] = payload + _CHECK.pack(a ^ b ^ c ^ d ^ e ^ _SALT)
        self._sequence = sequence

    def close(self) -> None:
        self._memory.close()


class RingReader:
    """Reads a ring that may be written at this moment, or may not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def since(self, sequence: int) -> tuple[NDArray[np.void], int, int]:
        """Records from `sequence` on (the first is 1), the sequence to ask for next, and how many were overwritten.

        Where the ring was made anew, its sequences behind those asked for, all of it is new.
        """
        content, positions, sequences = self._whole_records()
        newest = int(sequences[-1]) if len(sequences) else 0
        if newest + 1 < sequence:
            sequence = 1
        sequence = max(sequence, 1)
        records = content[positions[np.searchsorted(sequences, sequence) :]].view(RECORD)
        return records, newest + 1, newest + 1 - sequence - len(records)

    def latest(self, num_records: int, model_key: int | None = None, before: int | None = None) -> NDArray[np.void]:
        """The newest records, oldest first; of one model where one is named, before a sequence where one is given."""
        content, positions, sequences = self._whole_records()
        if before is not None:
            positions = positions[: np.searchsorted(sequences, before)]
        if model_key is not None:
            positions = positions[content.view(RECORD)["model_key"][positions] == model_key]
        records: NDArray[np.void] = content[positions[max(len(positions) - num_records, 0) :]].view(RECORD)
        return records

    def _whole_records(self) -> tuple[NDArray[np.void], NDArray[np.intp], NDArray[np.uint64]]:
        """The file's records, which of them are whole in order of sequence, and those sequences.

        Records are taken by position as plain bytes: NumPy copies a structure field by field, ten times slower.
        """
        records = _read_records(self.path)
        words = records.view("<u8").reshape(-1, RECORD.itemsize // 8)
        sequences = words[:, 0]
        check = words[:, 0] ^ words[:, 1] ^ words[:, 2] ^ words[:, 3] ^ words[:, 4] ^ words[:, 5]
        slots = np.arange(len(records), dtype=np.uint64)
        whole = np.flatnonzero((check == _SALT) & (sequences % np.uint64(max(len(records), 1)) == slots))
        positions = whole[np.argsort(sequences[whole], kind="stable")]
        return records, positions, sequences[positions]


def in_order(parts: Iterable[NDArray[np.void]]) -> NDArray[np.void]:
    """Records of several rings as one, by time; within a ring their order stands, whatever the clock did."""
    parts = list(parts)
    # a clock set back must not make old records look new: none is later than those that follow it
    times = [np.minimum.accumulate(part["time"][::-1])[::-1] for part in parts]
    order = np.argsort(np.concatenate([np.empty(0), *times]), kind="stable")
    merged: NDArray[np.void] = np.concatenate([np.empty(0, RECORD), *parts])[order]
    return merged


def read_recent(
    readers: Iterable[RingReader], model_key: int, size: int, cursors: Mapping[str, int] | None = None
) -> NDArray[np.void]:
    """The most recent `size` records of one model over all rings; with cursors only those before them, by file name."""
    before = {reader: None if cursors is None else cursors.get(reader.path.name, 1) for reader in readers}
    merged = in_order(reader.latest(size, model_key, sequence) for reader, sequence in before.items())
    recent: NDArray[np.void] = merged[max(len(merged) - size, 0) :]
    return recent


def _num_bytes(capacity: int) -> int:
    return _HEADER.size + capacity * RECORD.itemsize


def _read_records(path: Path) -> NDArray[np.void]:
    """Every slot as plain bytes; none where the file is no ring or not all of it is there."""
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    if len(content) >= _HEADER.size:
        magic, capacity = _HEADER.unpack_from(content)
        if magic == MAGIC and 1 <= capacity <= MAX_CAPACITY and len(content) == _num_bytes(capacity):
            return np.frombuffer(content, f"V{RECORD.itemsize}", offset=_HEADER.size)
    return np.empty(0, f"V{RECORD.itemsize}")


def _map_file(path: Path, capacity: int) -> mmap.mmap:
    """The ring's file in memory, its blocks allocated: a write to a hole on a full disk would end the process."""
    if not _is_ring(path, capacity):
        _create(path, capacity)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, _num_bytes(capacity))
        return mmap.mmap(file.fileno(), _num_bytes(capacity))


def _is_ring(path: Path, capacity: int) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(_HEADER.size) == _HEADER.pack(MAGIC, capacity) and (
                os.fstat(file.fileno()).st_size == _num_bytes(capacity)
            )
    except OSError:
        return False


def _create(path: Path, capacity: int) -> None:
    """An empty ring under its name in one step: a reader sees the old file or the new one."""
    draft = path.with_name(f".{path.name}.new")  # always the same name: killed writers leave one behind, not many
    try:
        with draft.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _num_bytes(capacity))
            file.write(_HEADER.pack(MAGIC, capacity))
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()  # what was allocated of it is the space that others lack
        raise
