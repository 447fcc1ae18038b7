"""Rows from the answers of a running service, many requests at a time."""

import asyncio
from collections.abc import Callable, Sequence

from portcullis.client import AsyncClient, ClientError, Refused
from portcullis.client.calls import Choice
from portcullis.commands.scoring.images import Images, name_of
from portcullis.commands.scoring.rows import FILE_FAULTS, ScoreRow, refused, unreadable
from portcullis.errors import PortcullisError
from portcullis.schemas.answers import Answer


async def score_by_service(
    client: AsyncClient,
    images: Images,
    keys: Sequence[str],
    choice: Choice,
    num_concurrent: int,
    write: Callable[[ScoreRow], None],
) -> None:
    """Ask for so many images at a time; rows come in the order of the answers."""
    waiting = iter(keys)

    async def ask() -> None:
        for key in waiting:
            write(await _ask_one(client, images, key, choice))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(num_concurrent):
                group.create_task(ask())
    except* (ClientError, OSError, PortcullisError) as errors:
        raise errors.exceptions[0] from None


async def _ask_one(client: AsyncClient, images: Images, key: str, choice: Choice) -> ScoreRow:
    name = name_of(key)
    try:
        content = await asyncio.to_thread(images.read, key)
    except OSError as error:
        return unreadable(name, error)
    try:
        return _row_of(name, await client.predict(content, **choice))
    except Refused as error:
        if error.code not in FILE_FAULTS:
            raise
        return refused(name, error.code, error.message)


def _row_of(name: str, answer: Answer) -> ScoreRow:
    return ScoreRow(
        name,
        answer.model,
        answer.version,
        answer.label,
        answer.class_index,
        answer.probability,
        answer.score,
        answer.mmles,
        answer.p_value,
        answer.threshold,
        answer.operating_point,
        answer.verdict,
        answer.reason,
    )
