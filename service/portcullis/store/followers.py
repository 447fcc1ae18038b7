"""Who follows the desired state, and how far: one small file a worker, which it alone writes.

They are for the answer to an admin call, and for no worker's own decisions. One that is not there is not waited for.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from portcullis.store.durable import replace_durably

DIRECTORY = "confirmed"


class Followed(BaseModel):
    """How far one worker has come."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    revision: int
    """The state that it has taken up: every gate that it could choose is in force."""
    behind: dict[str, str] = {}
    """Names that it does not serve as wanted yet, and why."""
    other_gate: tuple[str, ...] = ()
    """Of these, the ones whose gate is not the one that is wanted."""


class Followers:
    """Reads and writes these files in the runtime directory."""

    def __init__(self, runtime: Path) -> None:
        self._directory = runtime / DIRECTORY

    def confirm(self, slot: int, followed: Followed) -> None:
        """Say how far the worker of this slot has come; an OSError where that cannot be written."""
        replace_durably(self._directory / str(slot), followed.model_dump_json(), sync=False)

    def behind(self, revision: int, name: str | None = None, only_gate: bool = False) -> dict[int, str]:
        """The living workers that have not followed so far, for one name or all, and why; by slot."""
        found = {int(file.name): _lack(file, revision, name, only_gate) for file in self._directory.glob("[0-9]*")}
        return {slot: lack for slot, lack in sorted(found.items()) if lack is not None}

    def forget(self, slot: int | None = None) -> None:
        """A worker has died, or all have: expect nothing of it until its successor speaks."""
        self._directory.mkdir(exist_ok=True)
        for file in self._directory.glob("[0-9]*" if slot is None else str(slot)):
            file.unlink(missing_ok=True)


def _lack(file: Path, revision: int, name: str | None, only_gate: bool) -> str | None:
    try:
        followed = Followed.model_validate_json(file.read_bytes())
    except FileNotFoundError:  # it has died just now: nothing is expected of it
        return None
    except (OSError, ValidationError):
        return "what it says of itself cannot be read"
    if followed.revision < revision:
        return "it has not taken up the change yet"
    lacking = {key: why for key, why in followed.behind.items() if not only_gate or key in followed.other_gate}
    if name is not None:
        return lacking.get(name)
    return "; ".join(f"{key}: {why}" for key, why in lacking.items()) or None
