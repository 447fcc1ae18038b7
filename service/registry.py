"""Names and versions to pipelines: opens bundles, checks them, swaps them in. Knows no HTTP.

Every worker has a registry of its own and brings it in line with the desired state. A pipeline that leaves goes on
answering what it was given before it lets go of its engine.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from service import gate
from service.bundle import Bundle, Manifest, load_bundle
from service.engine import Engine, EngineOptions
from service.errors import BundleError, ServiceError, UnknownModel, UnknownVersion
from service.gate import Gate
from service.metrics import Metrics, ServedVersion
from service.pipeline import Pipeline
from service.shadowing import Shadowing, Tally
from service.state import DesiredState, ServedModel, Shadow

logger = logging.getLogger(__name__)

Validated = tuple[Bundle, Engine]


@dataclass(frozen=True)
class Served:
    """One name as this worker serves it now."""

    pipelines: dict[int, Pipeline]
    default: int
    is_pinned: bool
    gates: dict[int, Gate]
    """The gate on each version's own calibration scores."""
    shadow: Shadow | None = None


def validate(path: Path, options: EngineOptions) -> Validated:
    """Load, check and warm up a bundle; whatever is wrong with it is a BundleError, and nothing has changed."""
    if not path.is_dir():
        raise BundleError(f"no bundle {path.parent.name}/{path.name} lies in the models directory")
    bundle = load_bundle(path)
    if (bundle.manifest.name, str(bundle.manifest.version)) != (path.parent.name, path.name):
        raise BundleError(f"bundle {bundle.label} lies where {path.parent.name}/{path.name} is expected")
    engine = Engine(bundle, options)
    engine.self_test()
    return bundle, engine


class Registry:
    """What this worker serves."""

    def __init__(
        self,
        models: Path,
        options: EngineOptions,
        build: Callable[[Bundle, Engine], Pipeline],
        shadowing: Shadowing,
        metrics: Metrics,
        confirm: Callable[[int], None] = lambda revision: None,
        default_model: str | None = None,
    ) -> None:
        self._models, self._options, self._build, self._metrics = models, options, build, metrics
        self._shadowing, self._confirm = shadowing, confirm
        self._default_model = default_model
        self._checked: dict[tuple[str, int], Validated] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self.served: dict[str, Served] = {}
        self.revision = -1
        self.problems: dict[str, str] = {}
        """Why a name is not served as wanted, while it is not."""

    def default_name(self) -> str | None:
        """The model of the settings while it is served, otherwise the first by name."""
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

    async def check(self, name: str, version: int) -> Manifest:
        """Validate a version without serving it; its engine is kept for the swap that follows, or `forget_checked`."""
        if name in self.served and version in self.served[name].pipelines:
            return self.served[name].pipelines[version].manifest
        checked = await asyncio.to_thread(validate, self._models / name / str(version), self._options)
        self._checked[name, version] = checked
        return checked[0].manifest

    def forget_checked(self) -> None:
        """Let go of engines that were checked, but not swapped in."""
        while self._checked:
            self._checked.popitem()[1][1].close()

    async def reconcile(self, state: DesiredState) -> None:
        """Bring what is served in line with the desired state; a name that cannot be served so keeps what it has."""
        async with self._lock:
            if state.revision < self.revision:  # an older state that was read before the newer one came in
                return
            problems = {}
            for name, wanted in state.models.items():
                try:
                    await self._serve(name, wanted)
                except ServiceError as error:
                    problems[name] = str(error)
                    self._complain(name, str(error))
            for name in set(self.served) - set(state.models):
                self._shadowing.detach(name)
                self._retire(self.served.pop(name).pipelines.values())
            self.problems = problems
            self.revision = state.revision
            if not problems:
                self._confirm(state.revision)

    async def close(self) -> None:
        """Answer everything that is queued, then let go of all engines."""
        pipelines = [pipeline for served in self.served.values() for pipeline in served.pipelines.values()]
        await asyncio.gather(*(pipeline.close() for pipeline in pipelines), *self._retiring)

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
                method=pipeline.manifest.method.name,
                provider=pipeline.engine.providers[0],
                asked=",".join(pipeline.engine.asked),
                threshold=served.gates[version].threshold,
                expected_rejected_share=gate.expected_rejected_share(
                    served.gates[version], pipeline.manifest.calibration
                ),
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

    async def _serve(self, name: str, wanted: ServedModel) -> None:
        have = self.served[name].pipelines if name in self.served else {}
        opened = [await self._open(name, version) for version in wanted.versions if version not in have]
        manifests = {version: pipeline.manifest for version, pipeline in have.items() if version in wanted.versions}
        manifests |= {bundle.manifest.version: bundle.manifest for bundle, _ in opened}
        gates = {version: gate.choose(wanted.gate, manifest) for version, manifest in manifests.items()}
        pipelines = {version: pipeline for version, pipeline in have.items() if version in wanted.versions}
        pipelines |= {bundle.manifest.version: self._build(bundle, engine) for bundle, engine in opened}
        self.served[name] = Served(pipelines, wanted.default, wanted.is_pinned, gates, wanted.shadow)
        self._shadowing.attach(pipelines, gates, wanted.default, wanted.shadow)
        self._retire(pipeline for version, pipeline in have.items() if version not in wanted.versions)

    async def _open(self, name: str, version: int) -> Validated:
        if (name, version) in self._checked:
            return self._checked.pop((name, version))
        return await asyncio.to_thread(validate, self._models / name / str(version), self._options)

    def _complain(self, name: str, problem: str) -> None:
        """Once a problem, not at every attempt."""
        if self.problems.get(name) != problem:
            self._metrics.model_swaps.labels(name, "failed").inc()
            logger.error("cannot serve %s as wanted: %s; trying again", name, problem)

    def _retire(self, pipelines: Iterable[Pipeline]) -> None:
        for pipeline in pipelines:
            task = asyncio.create_task(pipeline.close())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            self._metrics.no_queue(pipeline.manifest.name, pipeline.manifest.version)
