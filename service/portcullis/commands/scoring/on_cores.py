"""A task on all cores of this machine: a process a core with one engine thread each; on a GPU one process."""

import itertools
import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

from portcullis.bundle import devices
from portcullis.commands.scoring.rows import ScoreRow
from portcullis.commands.scoring.task import OpenTask, Task, blocks
from portcullis.errors import PortcullisError

AHEAD = 2
"""Blocks that wait for each process, so that none waits for us."""


def score_on_cores(task: Task, keys: Sequence[str]) -> Iterator[ScoreRow]:
    """Rows as they come, block by block."""
    waiting, num_cores = blocks(keys), devices.num_cores()
    num_processes = 1 if devices.has_gpu_build() else min(num_cores, len(waiting))
    if num_processes == 1:
        alone = replace(task, threads=num_cores).open()
        yield from itertools.chain.from_iterable(alone.score(block) for block in waiting)
    else:
        yield from _in_processes(task, waiting, num_processes)


def _in_processes(task: Task, waiting: list[list[str]], num_processes: int) -> Iterator[ScoreRow]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, context, initializer=_open, initargs=(task,)) as pool:
        running: deque[Future[list[ScoreRow]]] = deque()
        try:
            for block in waiting:
                running.append(pool.submit(_score, block))
                if len(running) >= AHEAD * num_processes:
                    yield from running.popleft().result()
            while running:
                yield from running.popleft().result()
        except BrokenProcessPool:
            raise PortcullisError("a process that scored has died; the same command goes on where it stopped") from None
        finally:
            pool.shutdown(cancel_futures=True)


_task: OpenTask | None = None


def _open(task: Task) -> None:
    """A process opens its engine once. Ctrl-C is for the one that writes the sheet."""
    global _task
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _task = task.open()


def _score(block: list[str]) -> list[ScoreRow]:
    assert _task is not None
    return _task.score(block)
