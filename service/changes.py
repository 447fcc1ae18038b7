"""Changes of what is served: validate first, then write the desired state, then see every worker follow.

Knows no HTTP. Whoever asks (an admin's key, the watcher) is named in the audit log. What does not validate changes
nothing and says why.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from service import bundle as bundles
from service import gate
from service.bundle import Manifest
from service.errors import BundleError, Conflict, InvalidParameter, ServiceError, UnknownModel, UnknownVersion
from service.metrics import Metrics
from service.registry import Registry
from service.state import DesiredState, ServedModel, Shadow, StateStore

logger = logging.getLogger(__name__)

FOLLOW_SECONDS = 5.0
POLL_SECONDS = 0.02
MAX_REJECTED_SHARE = 0.5

Edit = Callable[[DesiredState], DesiredState]
ModelEdit = Callable[[ServedModel], ServedModel]


class Changes:
    """Everything that may be changed while it runs."""

    def __init__(
        self, models: Path, configured_gate: str, registry: Registry, store: StateStore, metrics: Metrics
    ) -> None:
        self._models, self._configured_gate = models, configured_gate
        self._registry, self._store, self._metrics = registry, store, metrics
        self._lock = asyncio.Lock()  # so that the engine that was checked is the one that is swapped in

    async def load(self, who: str, name: str, version: int) -> None:
        """Serve a version beside the default; a name that was not served gets it as its default."""
        self._on_disk(name, version)

        def edit(state: DesiredState) -> DesiredState:
            before = state.models.get(name)
            if before is None:
                return state.with_model(name, self._fresh(name, version))
            loaded = tuple(sorted({*before.loaded, version}))
            return state.with_model(name, before.model_copy(update={"loaded": loaded}))

        await self._swap(who, "load", name, version, edit)

    async def set_default(self, who: str, name: str, version: int | None, pin: bool | None) -> None:
        """Let a version answer; without one, the newest. The one before goes, unless it was loaded by name."""
        newest = self._newest(name)
        chosen = newest if version is None else self._on_disk(name, version)
        is_pinned = version is not None if pin is None else pin
        if not is_pinned and chosen != newest:
            raise InvalidParameter(f"version {newest} is newer than {chosen} and would take over again; pin {chosen}")

        def edit(state: DesiredState) -> DesiredState:
            before = state.models.get(name) or self._fresh(name, chosen)
            shadow = before.shadow if before.shadow and before.shadow.version != chosen else None
            return state.with_model(
                name, before.model_copy(update={"default": chosen, "is_pinned": is_pinned, "shadow": shadow})
            )

        await self._swap(who, "default", name, chosen, edit)

    async def adopt(self, who: str, name: str, version: int) -> None:
        """A newer version has appeared: let it answer, unless the name was pinned or unloaded in the meantime."""

        def edit(state: DesiredState) -> DesiredState:
            before = state.models.get(name)
            if name in state.unloaded or (before and (before.is_pinned or before.default >= version)):
                return state
            if before is None:
                return state.with_model(name, ServedModel(default=version, gate=self._configured_gate))
            return state.with_model(name, before.model_copy(update={"default": version}))

        await self._swap(who, "adopt", name, version, edit)

    async def unload_version(self, who: str, name: str, version: int) -> None:
        """Free the engine of a version that is not the default."""

        def edit(model: ServedModel) -> ServedModel:
            if version == model.default:
                raise Conflict(f"version {version} is the default of {name}; choose another first, or unload the model")
            if version not in model.versions:
                known = ", ".join(map(str, model.versions))
                raise UnknownVersion(f"model {name} is not served in version {version}; there are: {known}")
            shadow = model.shadow if model.shadow and model.shadow.version != version else None
            loaded = tuple(other for other in model.loaded if other != version)
            return model.model_copy(update={"loaded": loaded, "shadow": shadow})

        await self._edit_model(who, "unload_version", name, edit, version=version)

    async def unload(self, who: str, name: str) -> None:
        """Stop serving a name, until it is loaded again; a restart does not bring it back."""
        self._registry.find(name)
        await self._apply(who, "unload", name, lambda state: state.without_model(name))

    async def change_gate(self, who: str, name: str, chosen: str) -> None:
        """Change the threshold; every version that is served must be able to promise it."""
        for pipeline in self._registry.find(name).pipelines.values():
            gate.choose(chosen, pipeline.manifest)
        before = self._registry.find(name)
        old = before.gates[before.default]
        details = {"before": old.operating_point or repr(old.threshold), "after": chosen}
        await self._edit_model(who, "gate", name, lambda m: m.model_copy(update={"gate": chosen}), **details)

    # -- shadow ------------------------------------------------------------------------------------------------------

    async def start_shadow(self, who: str, name: str, version: int, share: float) -> None:
        """Show a candidate a share of the traffic. The default is pinned, lest a restart promote the candidate."""
        self._registry.find(name)
        self._on_disk(name, version)

        def edit(state: DesiredState) -> DesiredState:
            before = _served(state, name)
            if version == before.default:
                raise Conflict(f"version {version} of {name} answers already; a candidate must be another")
            is_same = before.shadow is not None and before.shadow.version == version
            session = before.shadow.session if before.shadow and is_same else state.revision + 1
            shadow = Shadow(version=version, share=share, session=session)
            return state.with_model(name, before.model_copy(update={"shadow": shadow, "is_pinned": True}))

        await self._swap(who, "shadow", name, version, edit, share=share)

    async def drop_shadow(self, who: str, name: str) -> None:
        """End the comparison; the default stays pinned."""
        await self._edit_model(
            who, "drop_shadow", name, lambda m: _with_shadow(m, name).model_copy(update={"shadow": None})
        )

    async def promote(self, who: str, name: str) -> None:
        """Let the candidate answer from now on."""
        newest = self._newest(name)

        def edit(model: ServedModel) -> ServedModel:
            shadow = _with_shadow(model, name).shadow
            assert shadow is not None
            is_pinned = shadow.version != newest
            return model.model_copy(update={"default": shadow.version, "shadow": None, "is_pinned": is_pinned})

        await self._edit_model(who, "promote", name, edit)
        self._metrics.model_swaps.labels(name, "ok").inc()

    # -- steps -------------------------------------------------------------------------------------------------------

    async def _swap(self, who: str, action: str, name: str, version: int, edit: Edit, **details: object) -> None:
        """Validate a version, then make the change that needs it."""
        async with self._lock:
            try:
                manifest = await self._registry.check(name, version)
                self._check_gate(name, manifest)
                await self._write(who, action, name, edit, version=version, **details)
            except ServiceError as error:
                self._metrics.model_swaps.labels(name, "failed").inc()
                logger.error("%s of %s/%d by %s failed: %s", action, name, version, who, error)
                raise
            finally:
                self._registry.forget_checked()
        self._metrics.model_swaps.labels(name, "ok").inc()

    async def _edit_model(self, who: str, action: str, name: str, edit: ModelEdit, **details: object) -> None:
        self._registry.find(name)
        await self._apply(
            who, action, name, lambda state: state.with_model(name, edit(_served(state, name))), **details
        )

    async def _apply(self, who: str, action: str, name: str, edit: Edit, **details: object) -> None:
        async with self._lock:
            await self._write(who, action, name, edit, **details)

    async def _write(self, who: str, action: str, name: str, edit: Edit, **details: object) -> None:
        """Write the desired state, follow it here, and wait a while for the other workers to have followed too."""
        _, after = await asyncio.to_thread(self._store.change, edit, who, action, model=name, **details)
        await self._registry.reconcile(after)
        end = time.monotonic() + FOLLOW_SECONDS
        while not self._store.is_confirmed(after.revision) and time.monotonic() < end:
            await asyncio.sleep(POLL_SECONDS)

    def _check_gate(self, name: str, manifest: Manifest) -> None:
        state = self._store.read()
        served = state.models.get(name) if state else None
        wanted = served.gate if served else self._configured_gate
        label = f"{manifest.name}/{manifest.version}"
        try:
            chosen = gate.choose(wanted, manifest)
        except ServiceError as error:
            raise BundleError(f"bundle {label} cannot keep the gate in force: {error}") from None
        share = gate.expected_rejected_share(chosen, manifest.calibration)
        if share > MAX_REJECTED_SHARE:  # an absolute threshold, and scores on another scale
            raise BundleError(
                f"bundle {label}: the gate in force, {wanted}, would reject {share:.0%} of its familiar images; "
                "choose an operating point first"
            )

    def _fresh(self, name: str, version: int) -> ServedModel:
        return ServedModel(default=version, is_pinned=version != self._newest(name), gate=self._configured_gate)

    def _newest(self, name: str) -> int:
        known = bundles.names(self._models)
        if name not in known:  # this also keeps `..` and its like out of the path of a bundle
            raise UnknownModel(f"no model {name!r} lies in the models directory; there are: {', '.join(known)}")
        return bundles.versions(self._models, name)[-1]

    def _on_disk(self, name: str, version: int) -> int:
        self._newest(name)
        known = bundles.versions(self._models, name)
        if version not in known:
            found = ", ".join(map(str, known))
            raise UnknownVersion(f"model {name} has no version {version} in the models directory; there are: {found}")
        return version


def _served(state: DesiredState, name: str) -> ServedModel:
    if name not in state.models:
        raise UnknownModel(f"model {name} has just been unloaded")
    return state.models[name]


def _with_shadow(model: ServedModel, name: str) -> ServedModel:
    if model.shadow is None:
        raise Conflict(f"model {name} has no candidate in the shadow")
    return model
