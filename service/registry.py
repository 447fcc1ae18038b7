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
from service.bundle import Bundle, load_bundle
from service.engine import Engine, EngineOptions
from service.errors import BundleError, ServiceError, UnknownModel, UnknownVersion
from service.gate import Gate
from service.metrics import Metrics
from service.pipeline import Pipeline
from service.state import DesiredState, ServedModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """One name as this worker serves it now."""

    pipelines: dict[int, Pipeline]
    default: int
    is_pinned: bool
    gates: dict[int, Gate]
    """The gate on each version's own calibration scores."""


def validate(path: Path, options: EngineOptions) -> tuple[Bundle, Engine]:
    """Load, check and warm up a bundle; whatever is wrong with it is a BundleError, and nothing has changed."""
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
        metrics: Metrics,
        default_model: str | None = None,
    ) -> None:
        self._models, self._options, self._build, self._metrics = models, options, build, metrics
        self._default_model = default_model
        self._retiring: set[asyncio.Task[None]] = set()
        self.served: dict[str, Served] = {}
        self.revision = -1

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

    async def check(self, name: str, version: int) -> Bundle:
        """Validate a bundle that is not served yet, without serving it."""
        bundle, _ = await asyncio.to_thread(validate, self._models / name / str(version), self._options)
        return bundle

    async def reconcile(self, state: DesiredState) -> None:
        """Bring what is served in line with the desired state; a name that cannot be served so keeps what it has."""
        for name, wanted in state.models.items():
            try:
                await self._serve(name, wanted)
            except ServiceError as error:
                self._metrics.model_swaps.labels(name, "failed").inc()
                logger.error("cannot serve %s as wanted: %s", name, error)
        for name in set(self.served) - set(state.models):
            self._retire(self.served.pop(name).pipelines.values())
        self.revision = state.revision

    async def close(self) -> None:
        """Answer everything that is queued, then let go of all engines."""
        pipelines = [pipeline for served in self.served.values() for pipeline in served.pipelines.values()]
        await asyncio.gather(*(pipeline.close() for pipeline in pipelines), *self._retiring)

    async def _serve(self, name: str, wanted: ServedModel) -> None:
        have = self.served[name].pipelines if name in self.served else {}
        versions = {*wanted.versions, wanted.default} | ({wanted.shadow.version} if wanted.shadow else set())
        opened = [
            await asyncio.to_thread(validate, self._models / name / str(version), self._options)
            for version in sorted(versions - set(have))
        ]
        pipelines = {version: pipeline for version, pipeline in have.items() if version in versions}
        pipelines |= {bundle.manifest.version: self._build(bundle, engine) for bundle, engine in opened}
        gates = {version: gate.choose(wanted.gate, pipeline.manifest) for version, pipeline in pipelines.items()}
        self.served[name] = Served(pipelines, wanted.default, wanted.is_pinned, gates)
        self._show(name)
        self._retire(pipeline for version, pipeline in have.items() if version not in versions)

    def _show(self, name: str) -> None:
        served = self.served[name]
        for version, pipeline in served.pipelines.items():
            labels = (name, str(version))
            self._metrics.gate_threshold.labels(*labels).set(served.gates[version].threshold)
            self._metrics.model_info.labels(
                *labels,
                pipeline.manifest.method.name,
                pipeline.engine.providers[0],
                ",".join(pipeline.engine.asked),
            ).set(1)

    def _retire(self, pipelines: Iterable[Pipeline]) -> None:
        for pipeline in pipelines:
            task = asyncio.create_task(pipeline.close())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
