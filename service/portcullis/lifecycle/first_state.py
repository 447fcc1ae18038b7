"""The state to start with: what the settings ask for, what lies in the models directory, what an admin changed.

In a fleet the settings speak only where the database has no state yet: while instances are replaced, old and new ones
would overrule each other in turn.
"""

import logging

from portcullis.bundle.promises import choose
from portcullis.bundle.sources.listing import Listing
from portcullis.bundle.sources.source import Source
from portcullis.errors import DatabaseAway, ServiceError, SettingsError
from portcullis.settings import Settings
from portcullis.store.earlier import earlier_state, put_away
from portcullis.store.state import DesiredState, ServedModel, StateStore

logger = logging.getLogger(__name__)


def begin(kept: StateStore, fleet: StateStore | None, options: Settings, source: Source) -> DesiredState:
    """The state to start with, checked and kept; `kept` is this instance's own, which a fleet's overrules."""
    previous = kept.read() or earlier_state(options.runtime_directory)
    if fleet is not None:
        state = _of_fleet(fleet, previous, options, source)
    else:
        state = plan(source, options.serve, options.gate, previous)
    check(state, options, source)
    kept.write(state)
    put_away(options.runtime_directory)
    return state


def _of_fleet(fleet: StateStore, previous: DesiredState | None, options: Settings, source: Source) -> DesiredState:
    """What the fleet agrees on; without its database what was known of it last, or what the settings ask for."""
    try:
        state = fleet.read() or fleet.begin_with(_first(source, options).model_copy(update={"revision": 1}))
    except DatabaseAway as error:
        logger.error("starting without the fleet's database: %s", error)
        return previous or _first(source, options)
    if (state.configured_gate, state.configured_serve) != (options.gate, options.serve):
        logger.warning("the settings serve or gate differ from those that the fleet began with; its database counts")
    return state


def _first(source: Source, options: Settings) -> DesiredState:
    return plan(source, options.serve, options.gate, None)


def plan(source: Source, serve: tuple[str, ...], gate: str, previous: DesiredState | None) -> DesiredState:
    """After a restart the state as it was; on a first start, or where the settings have changed, what they ask for.

    A version that has appeared in between is not adopted here: a worker validates it first (watcher.py).
    """
    listing = source.listing()
    is_known = previous is not None and previous.configured_serve == serve
    if previous is not None and is_known:
        served = _as_before(listing, previous)
    else:
        served = _as_asked(source.place, listing, serve, gate)
    unloaded = previous.unloaded if previous and is_known else ()
    if not served and not unloaded:
        raise SettingsError(f"no bundle lies in {source.place}; make one with: portcullis-train run --recipe digits")
    for name, model in served.items():
        before = previous.models.get(name) if previous is not None else None
        kept = before.gate if before and previous and previous.configured_gate == gate else gate
        served[name] = model.model_copy(update={"gate": kept})
    return DesiredState(
        revision=previous.revision + 1 if previous else 0,
        configured_gate=gate,
        configured_serve=serve,
        models=served,
        unloaded=unloaded,
    )


def check(state: DesiredState, options: Settings, source: Source) -> None:
    """Refuse early: every bundle must verify and every gate must be one that its calibration set can promise."""
    if options.default_model is not None and options.default_model not in (*state.models, *state.unloaded):
        raise SettingsError(
            f"default_model {options.default_model!r} is not among those served: {', '.join(state.models)}"
        )
    for name, model in state.models.items():
        for version in model.versions:
            manifest = source.load(name, version).manifest
            try:
                choose(model.gate, manifest)
            except ServiceError as error:
                others = "; name in serve the models that can" if len(state.models) > 1 else ""
                raise type(error)(f"the gate of {name}/{version}: {error}{others}") from None


def _as_asked(place: str, listing: Listing, serve: tuple[str, ...], gate: str) -> dict[str, ServedModel]:
    asked = [name.partition("@") for name in serve] or [(name, "", "") for name in listing.names()]
    served = {}
    for name, _, pin in asked:
        known = listing.versions(name)
        if not known or (pin and int(pin if pin.isdecimal() else 0) not in known):
            found = ", ".join(f"{n}@{v}" for n in listing.names() for v in listing.versions(n))
            raise SettingsError(f"no bundle {name}{'@' + pin if pin else ''} in {place}; there are: {found or 'none'}")
        served[name] = ServedModel(default=int(pin) if pin else known[-1], is_pinned=bool(pin), gate=gate)
    return served


def _as_before(listing: Listing, previous: DesiredState) -> dict[str, ServedModel]:
    served = {}
    for name, model in previous.models.items():
        known = listing.versions(name)
        if not known:
            logger.error("model %s was served before, but its bundles are gone", name)
            continue
        if model.default not in known:
            logger.error("%s/%d was served before, but is gone; serving version %d", name, model.default, known[-1])
            model = model.model_copy(update={"default": known[-1], "is_pinned": False})
        loaded = tuple(version for version in model.loaded if version in known)
        shadow = model.shadow if model.shadow and model.shadow.version in known else None
        served[name] = model.model_copy(update={"loaded": loaded, "shadow": shadow})
    return served
