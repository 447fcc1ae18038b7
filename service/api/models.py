"""`/v1/models`: what is served, and the gate that an admin may change while it runs."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from service import gate
from service.api.context import Context
from service.api.requests import secret
from service.api.schemas import GateChange, GateInfo, ModelInfo, ModelList, VersionInfo
from service.errors import InvalidParameter, UnknownModel
from service.gate import Gate
from service.pipeline import Pipeline
from service.registry import Served
from service.state import DesiredState

Name = Annotated[str, Path(description="A model's name", examples=["cifar10-resnet9"])]


def models_router(context: Context) -> APIRouter:
    """Reading needs the key that predicting needs; changing needs an admin key."""

    def may_read(request: Request) -> None:
        context.access.check_predict(secret(request.scope))

    def admin(request: Request) -> str:
        return context.access.check_admin(secret(request.scope))

    router = APIRouter(tags=["models"])

    @router.get("/v1/models", summary="Everything that is served", dependencies=[Depends(may_read)])
    async def list_models() -> ModelList:
        return ModelList(models=[_model_info(context, name) for name in sorted(context.registry.served)])

    @router.get("/v1/models/{name}", summary="One model with its versions", dependencies=[Depends(may_read)])
    async def show_model(name: Name) -> ModelInfo:
        return _model_info(context, name)

    @router.get("/v1/models/{name}/gate", summary="The gate in force", dependencies=[Depends(may_read)])
    async def show_gate(name: Name) -> GateInfo:
        served = context.registry.find(name)
        return _gate_info(served.pipelines[served.default], served.gates[served.default])

    @router.put("/v1/models/{name}/gate", summary="Change the gate in every worker (admin key)")
    async def change_gate(name: Name, change: GateChange, key_name: Annotated[str, Depends(admin)]) -> GateInfo:
        served = context.registry.find(name)
        chosen = _checked(change, served.pipelines[served.default])
        before, after = context.store.change(lambda state: _with_gate(state, name, chosen))
        context.store.audit(key_name, "gate", model=name, before=before.models[name].gate, after=chosen)
        await context.registry.reconcile(after)
        served = context.registry.find(name)
        return _gate_info(served.pipelines[served.default], served.gates[served.default])

    return router


def _checked(change: GateChange, pipeline: Pipeline) -> str:
    """The change as the state file spells it; refused where this version cannot promise it."""
    if (change.operating_point is None) == (change.threshold is None):
        raise InvalidParameter("give exactly one of operating_point and threshold")
    if change.operating_point is not None:
        return gate.choose_operating_point(change.operating_point, pipeline.manifest).operating_point or ""
    return repr(gate.parse_threshold(repr(change.threshold)))


def _with_gate(state: DesiredState, name: str, chosen: str) -> DesiredState:
    if name not in state.models:
        raise UnknownModel(f"model {name} has just been unloaded")
    return state.with_model(name, state.models[name].model_copy(update={"gate": chosen}))


def _model_info(context: Context, name: str) -> ModelInfo:
    served = context.registry.find(name)
    return ModelInfo(
        name=name,
        default_version=served.default,
        is_pinned=served.is_pinned,
        is_default=name == context.registry.default_name(),
        versions=[_version_info(served, version) for version in sorted(served.pipelines)],
    )


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
        gate=_gate_info(pipeline, served.gates[version]),
        providers=list(pipeline.engine.providers),
        providers_asked=list(pipeline.engine.asked),
    )


def _gate_info(pipeline: Pipeline, chosen: Gate) -> GateInfo:
    manifest = pipeline.manifest
    return GateInfo(
        model=manifest.name,
        version=manifest.version,
        operating_point=chosen.operating_point,
        threshold=chosen.threshold,
        expected_rejected_share=gate.expected_rejected_share(chosen, manifest.calibration),
    )
