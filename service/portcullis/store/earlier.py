"""The desired state as versions before the database kept it, taken over once."""

import json
import logging
from pathlib import Path

from portcullis.store.state import DesiredState

logger = logging.getLogger(__name__)

FILES = ("state.json", "state.twin.json")
TAKEN_OVER = ".taken-over"


def earlier_state(directory: Path) -> DesiredState | None:
    """What an earlier version has left, where one has."""
    for name in FILES:
        try:
            return DesiredState.model_validate(json.loads((directory / name).read_bytes())["state"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def put_away(directory: Path) -> None:
    """It counts no more; the files stay under another name."""
    for name in FILES:
        file = directory / name
        if file.exists():
            file.rename(file.with_name(name + TAKEN_OVER))
            logger.info("%s of an earlier version was taken over into the database", name)
