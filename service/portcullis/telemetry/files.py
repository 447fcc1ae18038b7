"""The files that workers write their metrics to, made to outlive a full disk and a killed worker."""

import json
import os
import struct
import threading
from pathlib import Path
from typing import Any

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict

_DOUBLE = struct.Struct("d")  # a value, as the library writes it; the time that follows it stays zero
FILE_BYTES = 256 * 1024  # enough for about 20 versions of 10 classes before it must grow


class AllocatedFile(MmapedDict):
    """A file of values whose blocks are on the disk before they are written to.

    The library makes files with holes, and a write into a hole of a full disk ends the process with SIGBUS.
    """

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        self._lost: dict[str, tuple[float, float]] = {}
        if not read_mode:
            _allocate(Path(filename))
        super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]

    def read_value(self, key: str) -> tuple[float, float]:
        if not self._has_room(key):
            return self._lost.setdefault(key, (0.0, 0.0))
        return super().read_value(key)  # type: ignore[no-untyped-call, no-any-return]

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        if key in self._positions or self._has_room(key):
            super().write_value(key, value, timestamp)  # type: ignore[no-untyped-call]

    def _has_room(self, key: str) -> bool:
        """Whether the key has a place or can get one; on a full disk a new series is lost, never an answer."""
        if key in self._positions:
            return True
        if key in self._lost:
            return False
        try:
            if self._used + len(key.encode()) + 64 > self._capacity:
                os.posix_fallocate(self._f.fileno(), 0, 2 * self._capacity)
        except OSError:
            self._lost[key] = (0.0, 0.0)
            return False
        return True


def _allocate(file: Path) -> None:
    """Have the file's blocks on the disk; one that is damaged is begun anew, since counters may start from zero."""
    with file.open("a+b") as stream:
        if not _is_sound(file):
            os.ftruncate(stream.fileno(), 0)
        os.posix_fallocate(stream.fileno(), 0, max(FILE_BYTES, os.fstat(stream.fileno()).st_size))


def _is_sound(file: Path) -> bool:
    content = file.read_bytes()
    try:
        used: int = struct.unpack_from("i", content)[0]
        for key, *_ in MmapedDict.read_all_values_from_file(str(file)):  # type: ignore[no-untyped-call]
            json.loads(key)
    except (RuntimeError, ValueError, struct.error):
        return not content
    return 0 <= used <= len(content)


def use_slot(slot: int) -> None:
    """Name this worker's files after its slot; call before `Metrics` is made."""
    values.MmapedDict = AllocatedFile  # type: ignore[attr-defined]
    values.ValueClass = _value_class(slot)


def _value_class(slot: int) -> Any:
    """The library's value for a process that never forks, whose place in the file is looked up once."""
    library_class: Any = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
    lock = threading.Lock()

    class SlotValue(library_class):  # type: ignore[misc]
        """A number in this worker's file."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            position = self._file._positions.get(self._key)  # none on a full disk: counted here, seen by nobody
            self._place = slice(position, position + _DOUBLE.size) if position is not None else None

        def inc(self, amount: float) -> None:
            with lock:
                self._value += amount
                if self._place is not None:
                    self._file._m[self._place] = _DOUBLE.pack(self._value)

    return SlotValue


def forget_gauges(directory: Path, slot: int) -> None:
    """Drop what only a living worker can say; its counters stay counted. Emptied in place, as space may be scarce."""
    for file in directory.glob(f"gauge_live*_{slot}.db"):
        with file.open("r+b") as stream:
            stream.write(bytes(8))
