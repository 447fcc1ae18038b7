"""Standard input of a process of the supervisor's: first its assignment, then nothing until the supervisor ends."""

import os

LIFELINE = 0


def first_line() -> str:
    """Read byte by byte, so that nothing behind the line is swallowed by a buffer."""
    line = bytearray()
    while (byte := os.read(LIFELINE, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode()
