"""What is served, as the API tells it."""

from collections.abc import Iterable

from service import gate
from service.api.context import Context
from service.api.model_schemas import RefusedInfo, ShadowInfo
from service.api.schemas import GateInfo, ModelInfo, ModelList, VersionInfo
from service.registry import Served
from service.watch import Refused


def list_models(context: Context) -> ModelList:
    """Everything that is served, and what lies there but cannot be."""
    return ModelList(
        models=[model_info(context, name) for name in sorted(context.registry.served)],
        refused=refused_info(context.watcher.refused()),
    )


def model_info(context: Context, name: str) -> ModelInfo:
    """One name with its versions."""
    served = context.registry.find(name)
    return ModelInfo(
        name=name,
        default_version=served.default,
        is_pinned=served.is_pinned,
        is_default=name == context.registry.default_name(),
        versions=[_version_info(served, version) for version in sorted(served.pipelines)],
        shadow=shadow_info(context, name),
        refused=refused_info(entry for entry in context.watcher.refused() if entry.model == name),
        problem=context.registry.problems.get(name),
    )


def gate_info(served: Served, version: int | None = None) -> GateInfo:
    """The gate of one version; without one, of the default."""
    chosen_version = served.default if version is None else version
    manifest, chosen = served.pipelines[chosen_version].manifest, served.gates[chosen_version]
    return GateInfo(
        model=manifest.name,
        version=manifest.version,
        operating_point=chosen.operating_point,
        threshold=chosen.threshold,
        expected_rejected_share=gate.expected_rejected_share(chosen, manifest.calibration),
    )


def shadow_info(context: Context, name: str) -> ShadowInfo | None:
    """The candidate and how it compares, where there is one."""
    shadow, tally = context.registry.find(name).shadow, context.registry.shadow_tally(name)
    if shadow is None or tally is None:
        return None
    num = tally.num_images

    def mean(total: float) -> float | None:
        return total / num if num else None

    return ShadowInfo(
        version=shadow.version,
        share=shadow.share,
        num_images=num,
        num_dropped=tally.num_dropped,
        num_failed=tally.num_failed,
        label_agreement=mean(tally.num_same_label),
        verdict_agreement=mean(tally.num_same_verdict),
        p_value_shift=mean(tally.p_value_shift),
        score_shift=mean(tally.score_shift),
        seconds=mean(tally.candidate_seconds),
        live_seconds=mean(tally.live_seconds),
    )


def refused_info(entries: Iterable[Refused]) -> list[RefusedInfo]:
    return [
        RefusedInfo(model=entry.model, version=entry.version, reason=entry.reason, time=entry.time) for entry in entries
    ]


def _version_info(served: Served, version: int) -> VersionInfo:
    pipeline = served.pipelines[version]
    manifest = pipeline.manifest
    return VersionInfo(
        version=version,
        created=manifest.created.isoformat(),
        labels=list(manifest.labels),
        image=manifest.image,
        method=manifest.method,
        temperature=manifest.temperature,
        num_calibration_images=manifest.calibration.num_images,
        operating_points=list(manifest.operating_points),
        figures=manifest.figures,
        provenance=manifest.provenance,
        gate=gate_info(served, version),
        providers=list(pipeline.engine.providers),
        providers_asked=list(pipeline.engine.asked),
    )
