"""A task on a Ray cluster: Ray Data hands blocks of names to actors, which read, decode and score; rows come back."""

import dataclasses
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import ray
import ray.data
from ray.exceptions import RayError

from portcullis.commands.on_ray.cluster import connected
from portcullis.commands.scoring.rows import ScoreRow
from portcullis.commands.scoring.task import Task, blocks
from portcullis.errors import PortcullisError

KEYS = "keys"


def score_on_ray(task: Task, keys: Sequence[str], address: str | None) -> Iterator[ScoreRow]:
    """Rows as they come, block by block; an actor on each core that the cluster has."""
    items = [{KEYS: [os.fsencode(key) for key in block]} for block in blocks(keys)]
    with connected(address):
        _be_quiet()
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        num_actors = max(1, min(int(resources.get("CPU", 1)), len(items)))
        scored = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            Scorer,
            fn_constructor_args=(ray.put(task.packed()),),
            batch_size=1,
            num_cpus=1,
            compute=ray.data.ActorPoolStrategy(size=num_actors),
        )
        try:
            tables: Iterable[Any] = scored.iter_batches(batch_size=None, batch_format="pyarrow")
            for table in tables:
                yield from (ScoreRow(**row) for row in table.to_pylist())
        except RayError as error:
            raise PortcullisError(f"Ray gave up: {_cause(error)}; the same command goes on where it stopped") from None


class Scorer:
    """An actor: one engine with one thread, on whichever machine it lands."""

    def __init__(self, task: Any) -> None:
        self._task = ray.get(task).open()

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        rows = [row for block in batch[KEYS] for row in self._task.score([os.fsdecode(key) for key in block])]
        return {field.name: [getattr(row, field.name) for row in rows] for field in dataclasses.fields(ScoreRow)}


def _cause(error: RayError) -> str:
    """The last line of a long story, which is what went wrong in the actor."""
    return str(error).strip().splitlines()[-1]


def _be_quiet() -> None:
    """Our own bar counts the rows that are in the sheet."""
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
