"""What is served, as the API tells it."""

import asyncio
import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Response

from portcullis.api.context import Context
from portcullis.bundle.manifest import Manifest, RightPoint
from portcullis.errors import UnknownModel
from portcullis.lifecycle.served import Served
from portcullis.lifecycle.shadowing import Tally
from portcullis.lifecycle.watcher import RefusedVersion
from portcullis.schemas.answers import (
    DeviceShift,
    ModelInfo,
    ModelList,
    VersionInfo,
)
from portcullis.schemas.gates import GateInfo
from portcullis.schemas.models import RefusedInfo, ShadowInfo, WorkerBehind
from portcullis.store.followers import Behind
from portcullis.store.state import Shadow


@dataclass(frozen=True)
class _Kept:
    """What the runtime directory has on the matter: read first and apart, so that the rest is of one moment."""

    refused: list[RefusedVersion]
    tallies: dict[str, Tally | None]


def _read(context: Context) -> _Kept:
    tallies = {}
    for name, served in list(context.registry.served.items()):
        for pipeline in served.pipelines.values():
            pipeline.promises.published()  # worked out once, and not on the event loop
        with contextlib.suppress(UnknownModel):  # unloaded just now
            tallies[name] = context.registry.shadow_tally(name)
    return _Kept(context.watcher.refused(), tallies)


async def list_models(context: Context) -> ModelList:
    """Everything that is served, and what lies there but cannot be."""
    kept = await asyncio.to_thread(_read, context)
    return ModelList(
        models=[_model_info(context, name, kept) for name in sorted(context.registry.served)],
        refused=refused_info(kept.refused),
    )


async def model_info(context: Context, name: str) -> ModelInfo:
    """One name with its versions."""
    return _model_info(context, name, await asyncio.to_thread(_read, context))


def _model_info(context: Context, name: str, kept: _Kept) -> ModelInfo:
    served = context.registry.find(name)
    return ModelInfo(
        name=name,
        default_version=served.default,
        is_pinned=served.is_pinned,
        is_default=name == context.registry.default_name(),
        versions=[_version_info(served, version) for version in sorted(served.pipelines)],
        shadow=_shadow_info(served.shadow, kept.tallies.get(name)),
        refused=refused_info(entry for entry in kept.refused if entry.model == name),
        problem=context.registry.problems.get(name),
    )


def gate_info(served: Served, version: int | None = None) -> GateInfo:
    """The gate of one version; without one, of the default."""
    chosen_version = served.default if version is None else version
    manifest, chosen = served.pipelines[chosen_version].manifest, served.gates[chosen_version]
    by_class = chosen.by_class
    return GateInfo(
        model=manifest.name,
        version=manifest.version,
        operating_point=chosen.operating_point,
        score=chosen.score,
        threshold=chosen.threshold if chosen.by_class is None and chosen.threshold > -math.inf else None,
        class_thresholds=None if by_class is None else by_label(manifest, [one.threshold for one in by_class]),
        min_probability=chosen.min_probability,
        right=chosen.right and _with_test_figures(chosen.right, manifest),
        expected_rejected_share=chosen.rejected_share,
    )


def _with_test_figures(point: RightPoint, manifest: Manifest) -> RightPoint:
    """The same with what came of it on test images, where the bundle publishes it."""
    for known in manifest.promises:
        if known == point.model_copy(update={"test_coverage": known.test_coverage, "test_error": known.test_error}):
            return known
    return point


def by_label(manifest: Manifest, values: Sequence[float]) -> dict[str, float]:
    """One value a class under its label."""
    return dict(zip(manifest.labels, values, strict=True))


def _shadow_info(shadow: Shadow | None, tally: Tally | None) -> ShadowInfo | None:
    """The candidate and how it compares, where there is one."""
    if shadow is None:
        return None
    if tally is None or tally.session != shadow.session:  # it began just now
        tally = Tally(session=shadow.session)
    num = tally.num_images

    def mean(total: float) -> float | None:
        return total / num if num else None

    return ShadowInfo(
        version=shadow.version,
        share=shadow.share,
        num_images=num,
        num_dropped=tally.num_dropped,
        num_failed=tally.num_failed,
        num_unfit=tally.num_unfit,
        label_agreement=mean(tally.num_same_label),
        verdict_agreement=mean(tally.num_same_verdict),
        p_value_shift=mean(tally.p_value_shift),
        score_shift=mean(tally.score_shift),
        seconds=mean(tally.candidate_seconds),
        live_seconds=mean(tally.live_seconds),
    )


def refused_info(entries: Iterable[RefusedVersion]) -> list[RefusedInfo]:
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
        score=manifest.score,
        operating_points=list(manifest.operating_points),
        class_thresholds={
            name: by_label(manifest, thresholds) for name, thresholds in pipeline.promises.by_class.items()
        },
        promises=list(manifest.promises),
        figures=manifest.figures,
        provenance=manifest.provenance,
        gate=gate_info(served, version),
        providers=list(pipeline.engine.providers),
        providers_asked=list(pipeline.engine.asked),
        provider_refusals=list(pipeline.engine.refusals),
        device_shift=DeviceShift(
            score=pipeline.engine.shifts.score,
            rejected_share=pipeline.moved_share(served.gates[version]),
            by_gate={gate.text: pipeline.moved_share(gate) for gate in pipeline.promises.published()},
        ),
    )


def workers_behind(behind: Behind, response: Response) -> list[WorkerBehind]:
    """Those that have not followed. With any of them the change is accepted, not done."""
    if behind:
        response.status_code = HTTPStatus.ACCEPTED
    return [WorkerBehind(**place._asdict(), reason=reason) for place, reason in behind.items()]
