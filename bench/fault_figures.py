"""Where a fault is tried, and what it cost, as a row of the table."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import sabotage
from tests.hammer import Hammer
from tests.postgres import Cluster
from tests.running import RunningService

Figures = dict[str, Any]


@dataclass(frozen=True)
class Ground:
    """A directory with models in two versions, and the engine that keeps the state."""

    directory: Path
    scale: float
    cluster: Cluster | None = None
    """PostgreSQL, and a database in it; none: SQLite."""
    url: str | None = None
    flags: tuple[str, ...] = ()
    """What else the service is told."""

    def some(self, number: int, at_least: int) -> int:
        """How many of them at this scale."""
        return max(at_least, round(number * self.scale))

    @property
    def models(self) -> Path:
        return self.directory / "models"

    @property
    def runtime(self) -> Path:
        return self.directory / "runtime"

    def serve(
        self, runtime: Path | None = None, models: Path | None = None, environment: dict[str, str] | None = None
    ) -> RunningService:
        """The service, two workers; it holds on to the database where there is one."""
        named = {} if self.url is None else {"PORTCULLIS_DATABASE": self.url}
        environment = named | (environment or {})
        return sabotage.serve(models or self.models, runtime or self.runtime, *self.flags, environment=environment)


def tally(hammer: Hammer) -> Figures:
    """The answers, all of them checked."""
    others = {status: count for status, count in hammer.statuses.items() if status != 200}
    return {"answers": hammer.num_answers, "wrong": len(hammer.wrong), "other than 200": others or 0}
