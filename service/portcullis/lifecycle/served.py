"""One name as a worker serves it, and what it lacks of what is wanted."""

from dataclasses import dataclass, field

from portcullis.answering.pipeline import Pipeline
from portcullis.bundle.gate import Gate
from portcullis.errors import ServiceError
from portcullis.store.state import Shadow


@dataclass
class Gap:
    """What one name lacks of what is wanted."""

    opening: list[int] = field(default_factory=list)
    problem: str | None = None
    has_other_gate: bool = False

    @property
    def reason(self) -> str | None:
        return self.problem or (f"opening version {', '.join(map(str, self.opening))}" if self.opening else None)


@dataclass(frozen=True)
class Served:
    """One name as this worker serves it now."""

    pipelines: dict[int, Pipeline]
    default: int
    is_pinned: bool
    gates: dict[int, Gate]
    """The gate on each version's own calibration scores."""
    shadow: Shadow | None = None

    def gates_at(self, chosen: str, gap: Gap) -> dict[int, Gate]:
        """Another gate for every version; one that cannot promise it keeps its own."""
        gates = dict(self.gates)
        for version, pipeline in self.pipelines.items():
            try:
                gates[version] = pipeline.promises.gate(chosen)
            except ServiceError as error:
                gap.problem, gap.has_other_gate = str(error), True
        return gates
