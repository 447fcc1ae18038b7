"""`/v1/models`: what is served, and what an admin may change while it runs."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from portcullis.api.context import Context
from portcullis.api.documents import accepted
from portcullis.api.keyed_route import key_name, keyed
from portcullis.api.model_answers import (
    gate_info,
    list_models,
    model_info,
    refused_info,
    workers_behind,
)
from portcullis.errors import InvalidParameter
from portcullis.schemas.answers import ModelInfo, ModelList
from portcullis.schemas.changes import GateChanged, ModelChanged
from portcullis.schemas.gates import GateChange, GateInfo
from portcullis.schemas.models import (
    AuditLine,
    AuditLog,
    DefaultChange,
    ScanResult,
    ShadowChange,
    Unloaded,
)
from portcullis.store.followers import Behind

Name = Annotated[str, Path(description="A model's name", examples=["pets"])]
Version = Annotated[int, Path(ge=1, le=999_999_999, description="A version", examples=[2])]
Who = Annotated[str, Depends(key_name)]


def models_router(context: Context) -> APIRouter:
    """Reading; needs the key that predicting needs."""

    router = APIRouter(tags=["models"], route_class=keyed(context.access.check_predict))

    @router.get("/v1/models", summary="Everything that is served")
    async def list_served() -> ModelList:
        return await list_models(context)

    @router.get("/v1/models/{name}", summary="One model with its versions")
    async def show_model(name: Name) -> ModelInfo:
        return await model_info(context, name)

    @router.get("/v1/models/{name}/gate", summary="The gate in force")
    async def show_gate(name: Name) -> GateInfo:
        return gate_info(context.registry.find(name))

    return router


def model_changes_router(context: Context) -> APIRouter:
    """Changing; needs an admin key. 200 once every worker has followed, 202 with those that have not after a while."""

    router = APIRouter(tags=["admin"], route_class=keyed(context.access.check_admin))
    changes = context.changes

    async def changed(name: str, behind: Behind, response: Response) -> ModelChanged:
        return ModelChanged(**dict(await model_info(context, name)), behind=workers_behind(behind, response))

    @router.get("/v1/audit", summary="Who changed what, and when (admin key)")
    async def show_audit(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> AuditLog:
        return AuditLog(lines=[AuditLine(**line) for line in await changes.audit(limit)])

    @router.post(
        "/v1/models/rescan",
        summary="Look for newer versions in the models directory and adopt them",
        responses=accepted(ScanResult),
    )
    async def rescan(who: Who, response: Response) -> ScanResult:
        scan = await context.watcher.scan(who)
        return ScanResult(
            adopted=[f"{name}/{version}" for name, version in scan.adopted],
            refused=refused_info(scan.refused),
            behind=workers_behind(scan.behind, response),
        )

    @router.put("/v1/models/{name}/gate", summary="Change the gate", responses=accepted(GateChanged))
    async def change_gate(name: Name, change: GateChange, who: Who, response: Response) -> GateChanged:
        context.registry.find(name)
        behind = await changes.change_gate(who, name, _spelled(change))
        return GateChanged(**dict(gate_info(context.registry.find(name))), behind=workers_behind(behind, response))

    @router.post(
        "/v1/models/{name}/versions/{version}",
        summary="Load a version beside the default",
        responses=accepted(ModelChanged),
    )
    async def load_version(name: Name, version: Version, who: Who, response: Response) -> ModelChanged:
        return await changed(name, await changes.load(who, name, version), response)

    @router.delete(
        "/v1/models/{name}/versions/{version}",
        summary="Unload a version that is not the default",
        responses=accepted(ModelChanged),
    )
    async def unload_version(name: Name, version: Version, who: Who, response: Response) -> ModelChanged:
        return await changed(name, await changes.unload_version(who, name, version), response)

    @router.put(
        "/v1/models/{name}/default",
        summary="Swap: choose the version that answers",
        responses=accepted(ModelChanged),
    )
    async def change_default(name: Name, change: DefaultChange, who: Who, response: Response) -> ModelChanged:
        return await changed(name, await changes.set_default(who, name, change.version, change.pin), response)

    @router.delete(
        "/v1/models/{name}", summary="Unload a model, until it is loaded again", responses=accepted(Unloaded)
    )
    async def unload(name: Name, who: Who, response: Response) -> Unloaded:
        return Unloaded(unloaded=name, behind=workers_behind(await changes.unload(who, name), response))

    @router.put(
        "/v1/models/{name}/shadow",
        summary="Show a candidate version a share of the traffic",
        responses=accepted(ModelChanged),
    )
    async def start_shadow(name: Name, change: ShadowChange, who: Who, response: Response) -> ModelChanged:
        return await changed(name, await changes.start_shadow(who, name, change.version, change.share), response)

    @router.delete("/v1/models/{name}/shadow", summary="Drop the candidate", responses=accepted(ModelChanged))
    async def drop_shadow(name: Name, who: Who, response: Response) -> ModelChanged:
        return await changed(name, await changes.drop_shadow(who, name), response)

    @router.post(
        "/v1/models/{name}/shadow/promote",
        summary="Let the candidate answer from now on",
        responses=accepted(ModelChanged),
    )
    async def promote(name: Name, who: Who, response: Response) -> ModelChanged:
        return await changed(name, await changes.promote(who, name), response)

    return router


def _spelled(change: GateChange) -> str:
    """The change as the state file spells it."""
    if (change.operating_point is None) == (change.threshold is None):
        raise InvalidParameter("give exactly one of operating_point and threshold")
    return change.operating_point if change.operating_point is not None else repr(change.threshold)
