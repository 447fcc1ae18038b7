"""Shows a share of the live traffic to a candidate version and compares. Its answers are returned to nobody.

The live answer never waits for it: an image is offered once its answer is ready, one image at a time is compared on
a thread of its own, which then rests nine times as long as it worked. What comes meanwhile, or while live images wait,
is dropped and counted. (A thread of low priority would do harm: it can be put aside while it holds Python's lock.)
"""

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from portcullis.answering.pipeline import Pipeline
from portcullis.answering.prediction import Prediction
from portcullis.bundle.gate import Gate, Row, decide
from portcullis.bundle.preprocess import Pixels, decode
from portcullis.store.durable import replace_durably
from portcullis.store.state import Shadow
from portcullis.telemetry.instruments import Metrics

logger = logging.getLogger(__name__)

MAX_SHARE_OF_TIME = 0.1


class Tally(BaseModel):
    """Sums over the compared images of one shadow session; those of all workers add up."""

    model_config = ConfigDict(extra="forbid")

    session: int
    num_images: int = 0
    num_same_label: int = 0
    num_same_verdict: int = 0
    num_dropped: int = 0
    num_failed: int = 0
    num_unfit: int = 0
    p_value_shift: float = 0.0
    score_shift: float = 0.0
    candidate_seconds: float = 0.0
    live_seconds: float = 0.0

    def __add__(self, other: "Tally") -> "Tally":
        sums = {name: getattr(self, name) + getattr(other, name) for name in Tally.model_fields if name != "session"}
        return Tally(session=self.session, **sums)


class Comparison:
    """One candidate beside the version that answers."""

    def __init__(
        self,
        live: Pipeline,
        candidate: Pipeline,
        gates: tuple[Gate, Gate],
        share: float,
        tally: Tally,
        owner: "Shadowing",
    ) -> None:
        self._live, self._candidate, self._gates, self._share = live, candidate, gates, share
        self._size = (candidate.manifest.image.height, candidate.manifest.image.width)
        self.tally = tally
        self._pool, self._metrics, self._max_pixels = owner.pool, owner.metrics, owner.max_pixels
        self._pending: set[asyncio.Task[None]] = set()
        self._rest_until = 0.0

    def offer(self, image: bytes | Pixels, prediction: Prediction) -> None:
        """Called with every live answer, in its path: a few comparisons, no waiting."""
        if random.random() >= self._share:
            return
        if not isinstance(image, bytes) and image.shape[:2] != self._size:
            self.tally.num_unfit += 1
            self._count("unfit")
            return
        if self._pending or self._live.queue_depth or time.monotonic() < self._rest_until:
            self.tally.num_dropped += 1
            self._count("dropped")
            return
        task = asyncio.create_task(self._compare(image, prediction))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _compare(self, image: bytes | Pixels, live: Prediction) -> None:
        started = time.monotonic()
        try:
            with self._candidate.in_use():
                loop = asyncio.get_running_loop()
                row, seconds = await loop.run_in_executor(self._pool, self._run, image)
        except Exception as error:  # whatever the candidate does, it does to nobody
            logger.warning("candidate %s failed on a live image: %s", self._candidate.bundle.label, error)
            self.tally.num_failed += 1
            self._count("failed")
        else:
            self._add(live, row, seconds)
        now = time.monotonic()
        self._rest_until = now + (now - started) * (1 / MAX_SHARE_OF_TIME - 1)

    def _run(self, image: bytes | Pixels) -> tuple[Row, float]:
        spec = self._candidate.manifest.image
        pixels = decode(image, spec, self._max_pixels) if isinstance(image, bytes) else image
        started = time.monotonic()
        [row] = self._candidate.rows([pixels])
        return row, time.monotonic() - started

    def _add(self, live: Prediction, row: Row, seconds: float) -> None:
        manifest, tally = self._candidate.manifest, self.tally
        of_live, of_candidate = self._gates
        is_same_label = manifest.labels[row.class_index] == self._live.manifest.labels[live.row.class_index]
        is_same_verdict = decide(live.row, of_live)[0] is decide(row, of_candidate)[0]
        tally.num_images += 1
        tally.num_same_label += is_same_label
        tally.num_same_verdict += is_same_verdict
        tally.p_value_shift += of_candidate.p_value(row) - of_live.p_value(live.row)
        tally.score_shift += float(np.nan_to_num(of_candidate.score_of(row) - of_live.score_of(live.row)))
        tally.candidate_seconds += seconds
        tally.live_seconds += live.inference_seconds
        self._count(_RESULTS[is_same_label, is_same_verdict])
        self._metrics.shadow_seconds.labels(manifest.name, str(manifest.version)).observe(seconds)

    def _count(self, result: str) -> None:
        manifest = self._candidate.manifest
        self._metrics.shadow.labels(manifest.name, str(manifest.version), result).inc()


_RESULTS = {
    (True, True): "same",
    (False, True): "label_differs",
    (True, False): "verdict_differs",
    (False, False): "both_differ",
}


class Shadowing:
    """All comparisons of one worker, and what those of the others found."""

    def __init__(self, directory: Path, slot: int, metrics: Metrics, max_pixels: int) -> None:
        self.metrics, self.max_pixels = metrics, max_pixels
        self.pool = ThreadPoolExecutor(1, "shadow")
        self._directory, self._file = directory, directory / f"{slot}.json"
        self._comparisons: dict[str, Comparison] = {}
        self._known = _read(self._file)  # a worker that replaces another goes on where that one stopped
        self._published: dict[str, Tally] = {}

    def attach(
        self, pipelines: Mapping[int, Pipeline], gates: Mapping[int, Gate], default: int, shadow: Shadow | None
    ) -> None:
        """Begin, go on with or end the comparison of one name."""
        for pipeline in pipelines.values():
            pipeline.shadow = None
        name = pipelines[default].manifest.name
        before = self._comparisons.pop(name, None)
        if shadow is None or shadow.version == default:
            return
        known = before.tally if before else self._known.get(name)
        tally = known if known and known.session == shadow.session else Tally(session=shadow.session)
        pair = (gates[default], gates[shadow.version])
        comparison = Comparison(pipelines[default], pipelines[shadow.version], pair, shadow.share, tally, self)
        self._comparisons[name] = comparison
        pipelines[default].shadow = comparison.offer

    def detach(self, name: str) -> None:
        """A name is not served any more."""
        self._comparisons.pop(name, None)

    async def publish(self) -> None:
        """Let the other workers see what this one found; called several times a second."""
        tallies = {name: comparison.tally.model_copy() for name, comparison in self._comparisons.items()}
        if tallies != self._published:
            self._published = tallies
            content = json.dumps({name: tally.model_dump() for name, tally in tallies.items()})
            with contextlib.suppress(OSError):  # a full disk: the figures come later
                await asyncio.to_thread(replace_durably, self._file, content, sync=False)

    def tally(self, name: str, session: int) -> Tally:
        """One session over all workers."""
        found = [_read(file).get(name) for file in self._directory.glob("*.json") if file != self._file]
        found += [comparison.tally for comparison in [self._comparisons.get(name)] if comparison]
        return sum((tally for tally in found if tally and tally.session == session), Tally(session=session))


def _read(file: Path) -> dict[str, Tally]:
    try:
        return {name: Tally.model_validate(tally) for name, tally in json.loads(file.read_bytes()).items()}
    except (OSError, ValueError, AttributeError, ValidationError):
        return {}
