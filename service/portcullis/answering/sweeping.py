"""Answers in time those whose engine does not."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

from portcullis.answering.job import Job
from portcullis.errors import DeadlineExceeded

SWEEP_SECONDS = 0.05


async def sweep(pending: Collection[Job[Any, Any, Any]], on_drop: Callable[[str], None]) -> None:
    """Answer 504 once a deadline has passed, even where the engine hangs; until this task is cancelled."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        now = time.monotonic()
        for job in [job for job in pending if now > job.deadline]:
            if not job.future.done():
                on_drop("deadline")
                job.future.set_exception(DeadlineExceeded("no answer within the deadline"))
