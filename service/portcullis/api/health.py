"""`/healthz`, `/readyz`, `/metrics`: what probes and Prometheus ask. No key is wanted here."""

import asyncio

from fastapi import APIRouter, Response

from portcullis.api.context import Context
from portcullis.schemas.answers import Health, Readiness
from portcullis.telemetry.instruments import CONTENT_TYPE


def health_router(context: Context) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz", summary="Whether the process lives")
    async def healthz() -> Health:
        return Health(status="alive")

    @router.get("/readyz", summary="Whether this worker is loaded, warm and not draining")
    async def readyz() -> Readiness:
        context.check_ready()
        running = context.registry.options
        return Readiness(status="ready", provider=running.providers[0], is_fallback=bool(running.refusals))

    @router.get(
        "/metrics",
        summary="Prometheus metrics of all workers",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        return Response(await asyncio.to_thread(context.expose_metrics), media_type=CONTENT_TYPE)

    return router
