"""Waits until a change is followed everywhere, for the answer to whoever asked; the change is made either way."""

import asyncio
import contextlib
import logging
import time

from portcullis.errors import DatabaseAway
from portcullis.store.followers import Behind, Followers, Look, Place

logger = logging.getLogger(__name__)

FOLLOW_SECONDS = 5.0
POLL_SECONDS = 0.02


async def until_followed(followers: Followers, revision: int, name: str, only_gate: bool = False) -> Behind:
    """Wait a while for every worker of every living instance to have followed; those that have not."""
    with contextlib.ExitStack() as stack:  # closed on this thread: that takes no time
        try:
            look = await asyncio.to_thread(stack.enter_context, followers.look())
            return await _followed(look, revision, name, only_gate)
        except DatabaseAway:
            return {Place("", None): "the database has gone since the change was made"}


async def _followed(look: Look, revision: int, name: str, only_gate: bool) -> Behind:
    end = time.monotonic() + FOLLOW_SECONDS
    while behind := await asyncio.to_thread(look.behind, revision, name, only_gate):
        if time.monotonic() > end:
            logger.warning("revision %d of %s is not followed by %s", revision, name, behind)
            break
        await asyncio.sleep(POLL_SECONDS)
    return behind
