"""What a worker does several times a second beside serving: shows how it is, and tries again what could not be done."""

import asyncio
import itertools
import logging
from collections.abc import Callable

from portcullis.lifecycle.registry import Registry
from portcullis.lifecycle.shadowing import Shadowing
from portcullis.telemetry.instruments import Metrics

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.2
RETRY_TICKS = 5


class Upkeep:
    """Runs until its task is cancelled; outlives any failure."""

    def __init__(self, registry: Registry, shadowing: Shadowing, metrics: Metrics, queue_capacity: float) -> None:
        self._registry, self._shadowing, self._metrics = registry, shadowing, metrics
        self._queue_capacity = queue_capacity

    async def run(self, num_connections: Callable[[], int], is_ready: Callable[[], bool]) -> None:
        for tick in itertools.count():
            await asyncio.sleep(TICK_SECONDS)
            try:
                self._metrics.workers_ready.set(int(is_ready()))
                self._refresh_gauges(num_connections())
                await self._shadowing.publish()
                if tick % RETRY_TICKS == 0 and self._registry.problems:
                    self._registry.retry()
            except Exception:
                logger.exception("could not do what is done several times a second; trying again")

    def _refresh_gauges(self, num_connections: int) -> None:
        self._metrics.connections.set(num_connections)
        for name, served in self._registry.served.items():
            for version, pipeline in served.pipelines.items():
                self._metrics.queue_depth.labels(name, str(version)).set(pipeline.queue_depth)
                self._metrics.queue_capacity.labels(name, str(version)).set(self._queue_capacity)
