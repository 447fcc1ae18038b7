"""Log lines: events through `logging`, requests through a sampled line of their own. Never a payload, never a key."""

import logging
import sys
import time
from typing import Any, TextIO

import orjson


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(entry).decode()


def configure(level: str, style: str) -> None:
    """Send this process's events to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if style == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("uvicorn.access", "uvicorn.error", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class RequestLog:
    """One line a request up to a rate; beyond it lines are left out and counted in the next."""

    def __init__(self, lines_per_second: float, style: str, stream: TextIO | None = None) -> None:
        self._rate = lines_per_second
        self._is_json = style == "json"
        self._stream = stream if stream is not None else sys.stderr
        self._allowance = lines_per_second
        self._last = time.monotonic()
        self._left_out = 0

    def is_due(self) -> bool:
        """Whether the rate allows a line for this request; where it does not, the next line counts it."""
        now = time.monotonic()
        self._allowance = min(max(self._rate, 1.0), self._allowance + (now - self._last) * self._rate)
        self._last = now
        if self._allowance < 1 or self._rate == 0:
            self._left_out += 1
            return False
        self._allowance -= 1
        return True

    def write(self, fields: dict[str, Any]) -> None:
        """Write one line."""
        if self._left_out:
            fields = fields | {"left_out": self._left_out}
            self._left_out = 0
        line = orjson.dumps({"time": round(time.time(), 6), **fields}).decode() if self._is_json else _text(fields)
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # a closed pipe must not cost an answer
            self._rate = 0


def _text(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items())
