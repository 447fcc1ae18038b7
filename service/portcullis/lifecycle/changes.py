"""Changes of what is served: validate first, then write the desired state, then see every worker follow.

Knows no HTTP. Whoever asks (an admin's key, the watcher) is named in the audit log. What does not validate changes
nothing and says why. A change that was written is made; each call gives the workers that have not followed it yet.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from portcullis.bundle.promises import check_fit
from portcullis.bundle.sources.source import Source
from portcullis.errors import (
    Conflict,
    InvalidParameter,
    ServiceError,
    StateNotWritten,
    UnknownModel,
    UnknownVersion,
)
from portcullis.lifecycle.following import until_followed
from portcullis.lifecycle.registry import Registry
from portcullis.store.followers import Behind, Followers
from portcullis.store.state import (
    DesiredState,
    Edit,
    ServedModel,
    Shadow,
    StateStore,
)
from portcullis.telemetry.instruments import Metrics

logger = logging.getLogger(__name__)

ModelEdit = Callable[[ServedModel], ServedModel]


class Changes:
    """Everything that may be changed while it runs."""

    def __init__(
        self,
        source: Source,
        configured_gate: str,
        registry: Registry,
        store: StateStore,
        followers: Followers,
        metrics: Metrics,
        managed_in: str | None = None,
    ) -> None:
        self._source, self._configured_gate, self._managed_in = source, configured_gate, managed_in
        self._registry, self._store, self._followers, self._metrics = registry, store, followers, metrics

    async def load(self, who: str, name: str, version: int) -> Behind:
        """Serve a version beside the default; a name that was not served gets it as its default."""
        newest = max(await self._versions(name, version))

        def edit(state: DesiredState) -> DesiredState:
            before = state.models.get(name)
            if before is None:
                return state.with_model(name, self._fresh(version, newest))
            loaded = tuple(sorted({*before.loaded, version}))
            return state.with_model(name, before.model_copy(update={"loaded": loaded}))

        return await self._swap(who, "load", name, version, edit)

    async def set_default(self, who: str, name: str, version: int | None, pin: bool | None) -> Behind:
        """Let a version answer; without one, the newest. The one before goes, unless it was loaded by name."""
        newest = max(await self._versions(name, version))
        chosen = newest if version is None else version
        is_pinned = version is not None if pin is None else pin
        if not is_pinned and chosen != newest:
            raise InvalidParameter(f"version {newest} is newer than {chosen} and would take over again; pin {chosen}")

        def edit(state: DesiredState) -> DesiredState:
            before = state.models.get(name) or self._fresh(chosen, newest)
            shadow = before.shadow if before.shadow and before.shadow.version != chosen else None
            return state.with_model(
                name, before.model_copy(update={"default": chosen, "is_pinned": is_pinned, "shadow": shadow})
            )

        return await self._swap(who, "default", name, chosen, edit)

    async def adopt(self, who: str, name: str, version: int) -> Behind:
        """A newer version has appeared: let it answer, unless the name was pinned or unloaded in the meantime."""

        def edit(state: DesiredState) -> DesiredState:
            before = state.models.get(name)
            if name in state.unloaded or (before and (before.is_pinned or before.default >= version)):
                return state
            if before is None:
                return state.with_model(name, ServedModel(default=version, gate=self._configured_gate))
            return state.with_model(name, before.model_copy(update={"default": version}))

        return await self._swap(who, "adopt", name, version, edit)

    async def unload_version(self, who: str, name: str, version: int) -> Behind:
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

        return await self._edit_model(who, "unload_version", name, edit, version=version)

    async def unload(self, who: str, name: str) -> Behind:
        """Stop serving a name, until it is loaded again; a restart does not bring it back."""
        self._registry.find(name)
        return await self._write(who, "unload", name, lambda state: state.without_model(name))

    async def change_gate(self, who: str, name: str, chosen: str) -> Behind:
        """Change the threshold; every version that is served must be able to promise it."""
        base = await self.base()
        for pipeline in self._registry.find(name).pipelines.values():
            pipeline.promises.gate(chosen)
        before = self._registry.find(name)
        old = before.gates[before.default]
        details = {"before": old.text, "after": chosen}

        def edit(state: DesiredState) -> DesiredState:
            return state.with_model(name, _served(state, name).model_copy(update={"gate": chosen}))

        after = await self._change(who, "gate", name, edit, base, **details)
        # only_gate: it waits for no engine that is being opened
        return await until_followed(self._followers, after.revision, name, only_gate=True)

    async def audit(self, limit: int) -> list[dict[str, Any]]:
        """The latest lines of the audit log, the oldest first."""
        return await asyncio.to_thread(self._store.audit, limit)

    # -- shadow ------------------------------------------------------------------------------------------------------

    async def start_shadow(self, who: str, name: str, version: int, share: float) -> Behind:
        """Show a candidate a share of the traffic. The default is pinned, lest a restart promote the candidate."""
        self._registry.find(name)
        await self._versions(name, version)

        def edit(state: DesiredState) -> DesiredState:
            before = _served(state, name)
            if version == before.default:
                raise Conflict(f"version {version} of {name} answers already; a candidate must be another")
            is_same = before.shadow is not None and before.shadow.version == version
            session = before.shadow.session if before.shadow and is_same else state.revision + 1
            shadow = Shadow(version=version, share=share, session=session)
            return state.with_model(name, before.model_copy(update={"shadow": shadow, "is_pinned": True}))

        return await self._swap(who, "shadow", name, version, edit, share=share)

    async def drop_shadow(self, who: str, name: str) -> Behind:
        """End the comparison; the default stays pinned."""
        return await self._edit_model(
            who, "drop_shadow", name, lambda m: _with_shadow(m, name).model_copy(update={"shadow": None})
        )

    async def promote(self, who: str, name: str) -> Behind:
        """Let the candidate answer from now on."""
        newest = max(await self._versions(name))

        def edit(model: ServedModel) -> ServedModel:
            shadow = _with_shadow(model, name).shadow
            assert shadow is not None
            is_pinned = shadow.version != newest
            return model.model_copy(update={"default": shadow.version, "shadow": None, "is_pinned": is_pinned})

        behind = await self._edit_model(who, "promote", name, edit)
        self._metrics.model_swaps.labels(name, "ok").inc()
        return behind

    # -- steps -------------------------------------------------------------------------------------------------------

    async def _swap(self, who: str, action: str, name: str, version: int, edit: Edit, **details: object) -> Behind:
        """Validate a version, then make the change that needs it; the engine that was checked is the one swapped in."""
        base = await self.base()
        try:
            async with self._registry.checked(name, version) as manifest:

                def edit_if_fit(state: DesiredState) -> DesiredState:
                    after = edit(state)
                    if after is not state:
                        check_fit(after.models[name].gate, manifest)
                    return after

                after = await self._change(who, action, name, edit_if_fit, base, version=version, **details)
        except ServiceError as error:
            self._metrics.model_swaps.labels(name, "failed").inc()
            logger.error("%s of %s/%d by %s failed: %s", action, name, version, who, error)
            raise
        self._metrics.model_swaps.labels(name, "ok").inc()
        return await until_followed(self._followers, after.revision, name)

    async def _edit_model(self, who: str, action: str, name: str, edit: ModelEdit, **details: object) -> Behind:
        self._registry.find(name)
        return await self._write(
            who, action, name, lambda state: state.with_model(name, edit(_served(state, name))), **details
        )

    async def _write(self, who: str, action: str, name: str, edit: Edit, **details: object) -> Behind:
        after = await self._change(who, action, name, edit, await self.base(), **details)
        return await until_followed(self._followers, after.revision, name)

    async def base(self) -> DesiredState:
        """What a change begins from. Raises where nothing can be changed, before anything is opened for it."""
        if self._managed_in is not None:
            raise Conflict(f"what is served is managed in {self._managed_in}; change it there")
        base = await asyncio.to_thread(self._store.read)
        if base is None:
            raise StateNotWritten("there is no desired state to change; restart the service")
        return base

    async def _change(
        self, who: str, action: str, name: str, edit: Edit, base: DesiredState, **details: object
    ) -> DesiredState:
        """Write the desired state, and follow it here."""
        _, after = await asyncio.to_thread(self._store.change, edit, who, action, base, model=name, **details)
        self._registry.follow(after)
        return after

    def _fresh(self, version: int, newest: int) -> ServedModel:
        return ServedModel(default=version, is_pinned=version != newest, gate=self._configured_gate)

    async def _versions(self, name: str, wanted: int | None = None) -> list[int]:
        """Versions of a name that can be loaded; raises where there is none, or not the one that is wanted."""
        listing = await asyncio.to_thread(self._source.listing)
        known, versions = listing.names(), listing.versions(name)
        if name not in known:  # this also keeps `..` and its like out of the path of a bundle
            raise UnknownModel(f"no model {name!r} lies in the models directory; there are: {', '.join(known)}")
        if wanted is not None and wanted not in versions:
            found = ", ".join(map(str, versions))
            raise UnknownVersion(f"model {name} has no version {wanted} in the models directory; there are: {found}")
        return versions


def _served(state: DesiredState, name: str) -> ServedModel:
    if name not in state.models:
        raise UnknownModel(f"model {name} has just been unloaded")
    return state.models[name]


def _with_shadow(model: ServedModel, name: str) -> ServedModel:
    if model.shadow is None:
        raise Conflict(f"model {name} has no candidate in the shadow")
    return model
