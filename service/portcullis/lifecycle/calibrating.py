"""Calibrates the gate of a served version on familiar images, as the next version beside it. Knows no HTTP.

The images go through the engine that answers, on a thread that leaves it half of the time at least. What comes of it
answers nobody until it is asked for: the default is pinned, lest a look at the models directory adopt it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portcullis.answering.pipeline import Pipeline
from portcullis.bundle.familiar import Familiar, Picture, read_pictures
from portcullis.bundle.files import Bundle
from portcullis.bundle.manifest import Manifest
from portcullis.bundle.next_version import next_manifest, write_next
from portcullis.bundle.outputs import Outputs
from portcullis.bundle.promises import check_fit
from portcullis.bundle.sources.source import Source
from portcullis.errors import Conflict
from portcullis.lifecycle.changes import Changes
from portcullis.lifecycle.registry import Registry
from portcullis.store.followers import Behind
from portcullis.store.state import DesiredState, StateStore


@dataclass(frozen=True)
class Order:
    """What is to be calibrated, on what, and what for."""

    name: str
    version: int | None
    """None: the default."""
    pictures: Sequence[Picture]
    source: str
    """Where the pictures come from, for people."""
    is_to_answer: bool
    """Whether the next version answers from then on."""


@dataclass(frozen=True)
class Calibrated:
    """What came of it."""

    manifest: Manifest
    from_version: int
    left_out: Counter[str]
    """Pictures that do not count, by reason."""
    behind: Behind


class Calibrating:
    """One calibration at a time in this worker."""

    def __init__(self, registry: Registry, store: StateStore, changes: Changes, source: Source) -> None:
        self._registry, self._store, self._changes, self._source = registry, store, changes, source
        self._is_busy = asyncio.Lock()

    async def calibrate(self, who: str, order: Order) -> Calibrated:
        """Write the next version; refused, with nothing written, where the pictures can promise nothing."""
        await self._changes.base()  # refuses where nothing may be changed
        if self._source.read_only is not None:
            raise Conflict(self._source.read_only)
        if self._is_busy.locked():
            raise Conflict("a gate is being calibrated already; try again when that is done")
        async with self._is_busy:
            pipeline, gate = self._registry.resolve(order.name, order.version)
            with pipeline.in_use():
                familiar = await asyncio.to_thread(_read, pipeline, order)
            manifest = await asyncio.to_thread(next_manifest, pipeline.bundle, familiar.answers)
            if order.is_to_answer:
                check_fit(gate.text, manifest)
            await asyncio.to_thread(self._write, who, order, pipeline.bundle, manifest)
            state = await asyncio.to_thread(self._store.read)
            if state is not None:
                self._registry.follow(state)
        behind: Behind = {}
        if order.is_to_answer:
            pin = self._registry.find(order.name).is_pinned
            behind = await self._changes.set_default(who, order.name, manifest.version, pin)
        return Calibrated(manifest, pipeline.manifest.version, familiar.left_out, behind)

    def _write(self, who: str, order: Order, bundle: Bundle, manifest: Manifest) -> None:
        """Under its name only once it serves, is on record, and cannot be adopted unasked."""

        def check(draft: Bundle) -> None:
            from portcullis.bundle.engine import Engine  # which loads onnxruntime: a front has no other use for it

            Engine(draft).self_test()
            num_images = manifest.calibration.num_images
            details = {"model": order.name, "from_version": bundle.manifest.version, "version": manifest.version}
            self._store.record(who, "calibrate", **details, images=num_images, source=order.source)
            if not order.is_to_answer:
                self._store.change(lambda state: _pinned(state, order.name), who, "pin", model=order.name)

        write_next(bundle, manifest, check)


def _read(pipeline: Pipeline, order: Order) -> Familiar:
    def run_and_rest(images: NDArray[np.uint8]) -> Outputs:
        started = time.monotonic()
        rows = pipeline.rows(list(images))
        time.sleep(time.monotonic() - started)  # live images come first
        return Outputs(
            probabilities=np.stack([row.probabilities for row in rows]),
            scores=np.array([row.score for row in rows], np.float32),
            parts=np.array([row.parts for row in rows], np.float32),
        )

    return read_pictures(pipeline.manifest, run_and_rest, order.pictures, order.source, batch_images=pipeline.max_batch)


def _pinned(state: DesiredState, name: str) -> DesiredState:
    if name not in state.models:  # unloaded just now: nothing would adopt it
        return state
    return state.with_model(name, state.models[name].model_copy(update={"is_pinned": True}))
