"""`/v1/models/{name}/drift`: what the supervisor last computed of a model's traffic."""

import asyncio
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Path

from portcullis.api.context import Context
from portcullis.api.keyed_route import keyed
from portcullis.bundle.gate import P_VALUE_BUCKETS, Gate
from portcullis.bundle.manifest import Manifest
from portcullis.drift.evidence import Detector
from portcullis.drift.instances import together
from portcullis.drift.window import Window, measure
from portcullis.schemas.drift import DriftInfo, DriftPoint, DriftReport

Name = Annotated[str, Path(description="A model's name", examples=["pets"])]


def drift_router(context: Context) -> APIRouter:
    """Reading needs the key that predicting needs."""

    router = APIRouter(tags=["models"], route_class=keyed(context.access.check_predict))

    @router.get("/v1/models/{name}/drift", summary="Recent traffic against the reference")
    async def show_drift(name: Name) -> DriftInfo:
        served = context.registry.find(name)
        manifest, gate = served.pipelines[served.default].manifest, served.gates[served.default]
        alarm_images = context.settings.drift_alarm_images
        published = (await asyncio.to_thread(context.drift.read)).models.get(name)
        if published is not None and (published.version, published.part) == (served.default, gate.part):
            report, history, reading = published.report, published.history, published.fleet
        else:  # only just in force
            report, history, reading = _nothing_yet(manifest, gate, alarm_images), (), None
        info = _info(manifest, gate, report, history)
        if context.instances.is_in_a_fleet:
            seen = await context.instances.read(name)
            info.fleet = together(seen, reading, alarm_images, manifest.version, gate.score)
        return info

    return router


def _nothing_yet(manifest: Manifest, gate: Gate, alarm_images: int) -> DriftReport:
    empty = np.empty(0, np.float32)
    window = Window(empty, empty, np.empty(0, np.uint16), np.empty(0, np.uint8))
    return measure(window, manifest, gate.calibration, Detector(gate.calibration, alarm_images))


def _info(manifest: Manifest, gate: Gate, report: DriftReport, history: tuple[DriftPoint, ...]) -> DriftInfo:
    return DriftInfo(
        model=manifest.name,
        version=manifest.version,
        score=gate.score,
        labels=manifest.labels,
        p_value_buckets=P_VALUE_BUCKETS,
        history=history,
        **vars(report),
    )
