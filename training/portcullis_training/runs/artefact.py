"""JSON bound to what it was computed from: what a run keeps of its calibration, its figures, its post-hoc scores.

An artefact names its origins (weights, settings, other artefacts) by value or digest. It is only read back where every
one of them is still the same, so that nothing that ships was computed from something else than what ships beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from portcullis_training.errors import ConfigError
from portcullis_training.runs import atomic
from portcullis_training.runs.directory import Run

Content = TypeVar("Content", bound=BaseModel)
Origins = Mapping[str, str]
"""What something was computed from, in words that an error can say, each by its value or digest."""


@dataclass(frozen=True)
class Artefact(Generic[Content]):
    """A kind of JSON file in a run's directory."""

    file: str
    content: type[Content]
    command: str
    """The command that computes it, as a person would call it."""

    def write(self, run: Run, content: Content, computed_from: Origins) -> None:
        """Keep the content together with its origins."""
        whole = {"computed_from": dict(computed_from), "content": json.loads(content.model_dump_json())}
        atomic.write_text(self.path(run), json.dumps(whole, indent=1) + "\n")

    def read(self, run: Run, computed_from: Origins) -> Content:
        """The content, if it was computed from these very origins; anything else is refused with what differs."""
        if not self.path(run).is_file():
            raise ConfigError(f"{run.directory} has no {self.file} yet; run `portcullis-train {self.command}` on it")
        kept = self._parse(run)
        changed = [name for name, value in computed_from.items() if kept["computed_from"].get(name) != value]
        if changed:
            raise ConfigError(
                f"{self.path(run)} was computed from other {changed[0]} than the run has now; {self.command} again"
            )
        try:
            return self.content.model_validate(kept["content"])
        except ValidationError as error:
            raise self._unreadable(run, error.errors()[0]["msg"]) from None

    def digest(self, run: Run) -> str:
        """sha256 of the file as it is, by which another artefact names it as an origin."""
        return hashlib.sha256(self.path(run).read_bytes()).hexdigest()

    def path(self, run: Run) -> Path:
        """Where the run keeps it."""
        return run.directory / self.file

    def _parse(self, run: Run) -> dict[str, Any]:
        try:
            kept = json.loads(self.path(run).read_bytes())
        except ValueError as error:
            raise self._unreadable(run, str(error)) from None
        if not isinstance(kept, dict) or set(kept) != {"computed_from", "content"}:
            raise self._unreadable(run, "it does not say what it was computed from")
        return kept

    def _unreadable(self, run: Run, reason: str) -> ConfigError:
        return ConfigError(f"{self.path(run)} cannot be used: {reason}; {self.command} again")
