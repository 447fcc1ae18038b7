"""What a worker tells its supervisor: one JSON object a line, on a pipe of its own. Light to import.

Standard output will not do: a library that prints there is normal, and its line would be taken for the worker's word.
"""

import contextlib
import os
from typing import Literal

from pydantic import BaseModel, ConfigDict

MAX_LINE_BYTES = 65536
ENGINE_BROKEN = 70
"""Status with which a worker ends whose engine is broken."""


class Message(BaseModel):
    """One thing that a worker says of itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event: Literal["ready", "failed", "broken"]
    """It serves; it cannot start; or it served and leaves, since its engine is broken."""
    reason: str = ""


def say(descriptor: int, message: Message) -> None:
    """Tell the supervisor; where that has gone, nobody."""
    with contextlib.suppress(OSError):
        os.write(descriptor, message.model_dump_json().encode() + b"\n")


class Channel:
    """The supervisor's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._rest = descriptor, b""
        os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        return self._descriptor

    def hear(self) -> list[Message] | None:
        """What was said since the last time; None once nobody can say anything more. Nonsense is a ValueError."""
        try:
            said = os.read(self._descriptor, MAX_LINE_BYTES)
        except BlockingIOError:
            return []
        if not said:
            return None
        *lines, self._rest = (self._rest + said).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise ValueError(f"expected a line, got {len(self._rest)} bytes without an end")
        return [Message.model_validate_json(line) for line in lines]

    def close(self) -> None:
        os.close(self._descriptor)
