"""One line of a score sheet, whoever scored: a service's answer, a bundle's, or why there is none. Light to import."""

from dataclasses import dataclass

from portcullis.errors import BadImage, ImageTooLarge, PayloadTooLarge

FILE_FAULTS = (BadImage.code, ImageTooLarge.code, PayloadTooLarge.code)
"""Refusals that are the file's own fault; any other ends the run, which can be taken up again."""


@dataclass(frozen=True)
class ScoreRow:
    """One line of a score sheet."""

    file: str
    model: str | None = None
    version: int | None = None
    label: str | None = None
    class_index: int | None = None
    probability: float | None = None
    score: float | None = None
    mmles: float | None = None
    p_value: float | None = None
    threshold: float | None = None
    operating_point: str | None = None
    verdict: str | None = None
    reason: str | None = None
    error: str | None = None


def unreadable(name: str, error: OSError) -> ScoreRow:
    """The row of a file that is there and cannot be read, or has gone meanwhile."""
    return ScoreRow(name, error=f"unreadable: {error.strerror or type(error).__name__}")


def refused(name: str, code: str, message: str) -> ScoreRow:
    """The row of a file that is no image, or too large a one."""
    return ScoreRow(name, error=f"{code}: {message}")
