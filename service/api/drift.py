"""`/v1/models/{name}/drift`: what the supervisor last computed of a model's traffic."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Path, Request

from service import drift
from service.api.context import Context
from service.api.drift_schemas import DriftInfo
from service.api.requests import secret
from service.bundle import Manifest
from service.drift import P_VALUE_BUCKETS, DriftReport, Window
from service.drift_reader import DriftPoint
from service.evidence import Detector

Name = Annotated[str, Path(description="A model's name", examples=["cifar10-resnet9"])]


def drift_router(context: Context) -> APIRouter:
    """Reading needs the key that predicting needs."""

    def may_read(request: Request) -> None:
        context.access.check_predict(secret(request.scope))

    router = APIRouter(tags=["models"], dependencies=[Depends(may_read)])

    @router.get("/v1/models/{name}/drift", summary="Recent traffic against the reference")
    async def show_drift(name: Name) -> DriftInfo:
        served = context.registry.find(name)
        manifest = served.pipelines[served.default].manifest
        published = context.drift.read().models.get(name)
        if published is None or published.version != served.default:  # swapped in just now
            return _info(manifest, _nothing_yet(manifest, context.settings.drift_alarm_images), ())
        return _info(manifest, published.report, published.history)

    return router


def _nothing_yet(manifest: Manifest, alarm_images: int) -> DriftReport:
    empty = np.empty(0, np.float32)
    window = Window(empty, empty, np.empty(0, np.uint16), np.empty(0, np.bool_))
    return drift.measure(window, manifest, Detector(manifest.calibration, alarm_images))


def _info(manifest: Manifest, report: DriftReport, history: tuple[DriftPoint, ...]) -> DriftInfo:
    return DriftInfo(
        model=manifest.name,
        version=manifest.version,
        labels=manifest.labels,
        p_value_buckets=P_VALUE_BUCKETS,
        history=history,
        **vars(report),
    )
