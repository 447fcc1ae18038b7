"""Names and versions to pipelines: what this worker serves, brought in line with the desired state. Knows no HTTP.

Gates and whatever else is at hand change at once; engines are opened beside (opening.py) and come in when they are
ready. A pipeline that leaves goes on answering what it was given before it lets go of its engine.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable

from portcullis.answering.pipeline import Pipeline
from portcullis.answering.served_engine import ServedEngine
from portcullis.bundle.files import Bundle
from portcullis.bundle.gate import Gate
from portcullis.bundle.manifest import Manifest
from portcullis.bundle.promises import choose
from portcullis.bundle.providers import EngineOptions
from portcullis.bundle.sources.source import Source
from portcullis.errors import ServiceError, UnknownModel, UnknownVersion
from portcullis.lifecycle.opening import OpenEngine, Opening
from portcullis.lifecycle.report import Report
from portcullis.lifecycle.served import Gap, Served
from portcullis.lifecycle.shadowing import Shadowing, Tally
from portcullis.store.followers import Followed
from portcullis.store.state import DesiredState, ServedModel
from portcullis.telemetry.collectors import ServedVersion
from portcullis.telemetry.instruments import Metrics

logger = logging.getLogger(__name__)


class Registry:
    """What this worker serves."""

    def __init__(
        self,
        source: Source,
        options: EngineOptions,
        open_engine: OpenEngine,
        build: Callable[[Bundle, ServedEngine], Pipeline],
        shadowing: Shadowing,
        metrics: Metrics,
        confirm: Callable[[Followed], None] = lambda followed: None,
        place: Callable[[], object] = lambda: None,
        default_model: str | None = None,
    ) -> None:
        self.options, self._build, self._metrics = options, build, metrics
        self._shadowing, self._default_model = shadowing, default_model
        self._opening = Opening(source, open_engine, self._settle)
        self._report = Report(confirm, place)
        self._retiring: set[asyncio.Task[None]] = set()
        self._wanted: DesiredState | None = None
        self.served: dict[str, Served] = {}
        self.problems: dict[str, str] = {}
        """Why a name is not served as wanted, while it is not."""

    def default_name(self) -> str | None:
        """The model that was asked for while it is served, otherwise the first by name."""
        if self._default_model in self.served:
            return self._default_model
        return min(self.served, default=None)

    def find(self, name: str) -> Served:
        """One name as it is served, or an error that lists those that are."""
        if name not in self.served:
            raise UnknownModel(f"no model {name!r} is served; there are: {', '.join(sorted(self.served)) or 'none'}")
        return self.served[name]

    def resolve(self, model: str | None = None, version: int | None = None) -> tuple[Pipeline, Gate]:
        """The pipeline that a request asks for, with the gate in force."""
        name = model if model is not None else (self.default_name() or "")
        served = self.find(name)
        chosen = served.default if version is None else version
        pipeline = served.pipelines.get(chosen)
        if pipeline is None:
            known = ", ".join(map(str, sorted(served.pipelines)))
            raise UnknownVersion(f"model {name} is not served in version {chosen}; there are: {known}")
        return pipeline, served.gates[chosen]

    @property
    def absence(self) -> str | None:
        """Why some of what is served is not answered just now: its engine's process is being replaced."""
        pipelines = (pipeline for served in self.served.values() for pipeline in served.pipelines.values())
        return next((pipeline.absence for pipeline in pipelines if pipeline.absence is not None), None)

    @contextlib.asynccontextmanager
    async def checked(self, name: str, version: int) -> AsyncIterator[Manifest]:
        """Validate a version without serving it; its engine is kept for the change that is made in this block."""
        if name in self.served and version in self.served[name].pipelines:
            yield self.served[name].pipelines[version].manifest
            return
        try:
            async with self._opening.checked((name, version)) as manifest:
                yield manifest
        finally:
            self._settle()

    @property
    def revision(self) -> int:
        """That of the state which was taken up last."""
        return self._wanted.revision if self._wanted is not None else -1

    def follow(self, state: DesiredState) -> None:
        """Take up a state: gates and whatever is at hand at once, new versions when their engines are open.

        A name that cannot be served as wanted keeps what it has. An older state, read before a newer one came in, is
        passed over.
        """
        if state.revision > self.revision:
            self._wanted = state
            self._opening.forget_failed()
            self._settle()
        self._report.repeat_if_lost()

    def retry(self) -> None:
        """Try again what could not be done."""
        self._opening.try_again()
        self._settle()

    async def reconcile(self, state: DesiredState) -> None:
        """Follow a state to its end: everything is open, or known to be impossible, and that is said."""
        self.follow(state)
        await self._opening.wait()
        self._settle()
        await self._report.wait()

    async def close(self) -> None:
        """Answer everything that is queued, then let go of all engines."""
        self._wanted = None
        pipelines = [pipeline for served in self.served.values() for pipeline in served.pipelines.values()]
        await asyncio.gather(*(pipeline.close() for pipeline in pipelines), *self._retiring, self._opening.close())

    def shadow_tally(self, name: str) -> Tally | None:
        """What all workers found of the candidate, where there is one."""
        shadow = self.find(name).shadow
        return self._shadowing.tally(name, shadow.session) if shadow else None

    def describe(self) -> list[ServedVersion]:
        """What is served, for the metrics."""
        return [
            ServedVersion(
                name=name,
                version=version,
                is_default=version == served.default,
                method=pipeline.manifest.method.name,
                provider=pipeline.engine.providers[0],
                asked=",".join(pipeline.engine.asked),
                is_fallback=bool(pipeline.engine.refusals),
                moved_share=pipeline.moved_share(served.gates[version]),
                gate=served.gates[version],
                labels=pipeline.manifest.labels,
                shadow_shift=self._shift(name, served, version),
            )
            for name, served in list(self.served.items())
            for version, pipeline in served.pipelines.items()
        ]

    def _shift(self, name: str, served: Served, version: int) -> float | None:
        if served.shadow is None or served.shadow.version != version:
            return None
        tally = self._shadowing.tally(name, served.shadow.session)
        return tally.p_value_shift / tally.num_images if tally.num_images else None

    # -- bringing it in line -----------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Serve what is wanted as far as it is open by now; called again whenever another engine is."""
        if self._wanted is None:
            return
        models = self._wanted.models
        gaps = {name: self._serve(name, wanted) for name, wanted in models.items()}
        for name in set(self.served) - set(models):
            self._shadowing.detach(name)
            self._retire(self.served.pop(name).pipelines.values())
        self._opening.keep({(name, v) for name, wanted in models.items() for v in self._missing(name, wanted)})
        self._tell(self._wanted.revision, gaps)

    def _serve(self, name: str, wanted: ServedModel) -> Gap:
        """Bring one name in line. While its default is being opened the one before answers, at the gate now wanted."""
        gap, before = Gap(), self.served.get(name)
        held = before.pipelines if before is not None else {}
        gates = before.gates_at(wanted.gate, gap) if before is not None else {}
        gates |= self._open_gates(name, self._missing(name, wanted), wanted.gate, gap)
        default = wanted.default if wanted.default in gates else before.default if before is not None else None
        if default is None:
            return gap
        kept = [version for version in sorted(gates) if version in wanted.versions or version == default]
        served = Served(
            {version: held.get(version) or self._build(*self._opening.take((name, version))) for version in kept},
            default,
            wanted.is_pinned,
            {version: gates[version] for version in kept},
            wanted.shadow if wanted.shadow is not None and wanted.shadow.version in kept else None,
        )
        if served != before:
            self.served[name] = served
            for version, pipeline in served.pipelines.items():
                pipeline.follow(served.gates[version])
            self._shadowing.attach(served.pipelines, served.gates, default, served.shadow)
            self._retire(pipeline for version, pipeline in held.items() if version not in kept)
        return gap

    def _missing(self, name: str, wanted: ServedModel) -> list[int]:
        held = self.served[name].pipelines if name in self.served else {}
        return [version for version in wanted.versions if version not in held]

    def _open_gates(self, name: str, missing: Iterable[int], chosen: str, gap: Gap) -> dict[int, Gate]:
        """The gate of every version that is wanted, not served yet, and open; the others begin to be opened."""
        gates = {}
        for version in missing:
            try:
                manifest = self._opening.find((name, version))
                if manifest is None:
                    gap.opening.append(version)
                else:
                    gates[version] = choose(chosen, manifest)
            except ServiceError as error:
                gap.problem = str(error)
        return gates

    def _tell(self, revision: int, gaps: dict[str, Gap]) -> None:
        """Once a problem in the log, not at every attempt; always in what this worker says of itself."""
        problems = {name: gap.problem for name, gap in gaps.items() if gap.problem is not None}
        for name, problem in problems.items():
            if self.problems.get(name) != problem:
                self._metrics.model_swaps.labels(name, "failed").inc()
                logger.error("cannot serve %s as wanted: %s; trying again", name, problem)
        self.problems = problems
        behind = {name: gap.reason for name, gap in gaps.items() if gap.reason is not None}
        other_gate = tuple(name for name, gap in gaps.items() if gap.has_other_gate)
        self._report.say(Followed(revision=revision, behind=behind, other_gate=other_gate))

    def _retire(self, pipelines: Iterable[Pipeline]) -> None:
        for pipeline in pipelines:
            task = asyncio.create_task(pipeline.close())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            self._metrics.no_queue(pipeline.manifest.name, pipeline.manifest.version)
