"""`/v1/models`: what is served, and what an admin may change while it runs."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from service.api.context import Context
from service.api.model_answers import gate_info, list_models, model_info, refused_info
from service.api.model_schemas import DefaultChange, ScanResult, ShadowChange, Unloaded
from service.api.requests import secret
from service.api.schemas import GateChange, GateInfo, ModelInfo, ModelList
from service.errors import InvalidParameter

Name = Annotated[str, Path(description="A model's name", examples=["cifar10-resnet9"])]
Version = Annotated[int, Path(ge=1, le=999_999_999, description="A version", examples=[2])]


def models_router(context: Context) -> APIRouter:
    """Reading; needs the key that predicting needs."""

    def may_read(request: Request) -> None:
        context.access.check_predict(secret(request.scope))

    router = APIRouter(tags=["models"], dependencies=[Depends(may_read)])

    @router.get("/v1/models", summary="Everything that is served")
    async def list_served() -> ModelList:
        return list_models(context)

    @router.get("/v1/models/{name}", summary="One model with its versions")
    async def show_model(name: Name) -> ModelInfo:
        return model_info(context, name)

    @router.get("/v1/models/{name}/gate", summary="The gate in force")
    async def show_gate(name: Name) -> GateInfo:
        return gate_info(context.registry.find(name))

    return router


def model_changes_router(context: Context) -> APIRouter:
    """Changing; needs an admin key. Each call answers once every worker has followed."""

    def admin(request: Request) -> str:
        return context.access.check_admin(secret(request.scope))

    router = APIRouter(tags=["admin"])
    changes = context.changes

    @router.post("/v1/models/rescan", summary="Look for newer versions in the models directory and adopt them")
    async def rescan(who: Annotated[str, Depends(admin)]) -> ScanResult:
        scan = await context.watcher.scan(who)
        return ScanResult(
            adopted=[f"{name}/{version}" for name, version in scan.adopted], refused=refused_info(scan.refused)
        )

    @router.put("/v1/models/{name}/gate", summary="Change the gate")
    async def change_gate(name: Name, change: GateChange, who: Annotated[str, Depends(admin)]) -> GateInfo:
        context.registry.find(name)
        await changes.change_gate(who, name, _spelled(change))
        return gate_info(context.registry.find(name))

    @router.post("/v1/models/{name}/versions/{version}", summary="Load a version beside the default")
    async def load_version(name: Name, version: Version, who: Annotated[str, Depends(admin)]) -> ModelInfo:
        await changes.load(who, name, version)
        return model_info(context, name)

    @router.delete("/v1/models/{name}/versions/{version}", summary="Unload a version that is not the default")
    async def unload_version(name: Name, version: Version, who: Annotated[str, Depends(admin)]) -> ModelInfo:
        await changes.unload_version(who, name, version)
        return model_info(context, name)

    @router.put("/v1/models/{name}/default", summary="Swap: choose the version that answers")
    async def change_default(name: Name, change: DefaultChange, who: Annotated[str, Depends(admin)]) -> ModelInfo:
        await changes.set_default(who, name, change.version, change.pin)
        return model_info(context, name)

    @router.delete("/v1/models/{name}", summary="Unload a model, until it is loaded again")
    async def unload(name: Name, who: Annotated[str, Depends(admin)]) -> Unloaded:
        await changes.unload(who, name)
        return Unloaded(unloaded=name)

    @router.put("/v1/models/{name}/shadow", summary="Show a candidate version a share of the traffic")
    async def start_shadow(name: Name, change: ShadowChange, who: Annotated[str, Depends(admin)]) -> ModelInfo:
        await changes.start_shadow(who, name, change.version, change.share)
        return model_info(context, name)

    @router.delete("/v1/models/{name}/shadow", summary="Drop the candidate")
    async def drop_shadow(name: Name, who: Annotated[str, Depends(admin)]) -> ModelInfo:
        await changes.drop_shadow(who, name)
        return model_info(context, name)

    @router.post("/v1/models/{name}/shadow/promote", summary="Let the candidate answer from now on")
    async def promote(name: Name, who: Annotated[str, Depends(admin)]) -> ModelInfo:
        await changes.promote(who, name)
        return model_info(context, name)

    return router


def _spelled(change: GateChange) -> str:
    """The change as the state file spells it."""
    if (change.operating_point is None) == (change.threshold is None):
        raise InvalidParameter("give exactly one of operating_point and threshold")
    return change.operating_point if change.operating_point is not None else repr(change.threshold)
