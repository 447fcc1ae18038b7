"""Scores a folder of images, by a running service or straight from a bundle. A broken file is a row with an error."""

import asyncio
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from portcullis.client import AsyncClient, ClientError, Refused
from portcullis.client.calls import Choice
from portcullis.errors import (
    BadImage,
    ImageTooLarge,
    PayloadTooLarge,
    PortcullisError,
)
from portcullis.schemas.answers import Answer

if TYPE_CHECKING:
    from portcullis.bundle.engine import Engine
    from portcullis.bundle.files import Bundle
    from portcullis.bundle.gate import Gate
    from portcullis.bundle.preprocess import Pixels

EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
BATCH_IMAGES = 32
MMLES = "mmles"
FILE_FAULTS = (BadImage.code, ImageTooLarge.code, PayloadTooLarge.code)
"""Refusals that are the file's own fault; any other ends the run, which can be taken up again."""


@dataclass(frozen=True)
class ScoreRow:
    """One line of a score sheet."""

    file: str
    model: str | None = None
    version: int | None = None
    label: str | None = None
    class_index: int | None = None
    probability: float | None = None
    score: float | None = None
    mmles: float | None = None
    p_value: float | None = None
    threshold: float | None = None
    operating_point: str | None = None
    verdict: str | None = None
    reason: str | None = None
    error: str | None = None


def find_images(folder: Path) -> list[Path]:
    """Every image file below a folder, in a fixed order; what has no image's ending is passed over."""
    if not folder.is_dir():
        raise PortcullisError(f"expected a folder of images, got {folder}")
    found = (
        Path(root) / name
        for root, _, names in os.walk(folder)
        for name in names
        if Path(name).suffix.lower() in EXTENSIONS
    )
    return sorted(found)


def name_in(folder: Path, file: Path) -> str:
    """A file's name in the sheet: below the folder, with forward slashes, in valid UTF-8 whatever the disk says."""
    return os.fsencode(file.relative_to(folder).as_posix()).decode("utf-8", "backslashreplace")


# -- by a running service --------------------------------------------------------------------------------------------


async def score_by_service(
    client: AsyncClient,
    folder: Path,
    files: Sequence[Path],
    choice: Choice,
    num_concurrent: int,
    write: Callable[[ScoreRow], None],
) -> None:
    """Ask for so many files at a time; rows come in the order of the answers."""
    waiting = iter(files)

    async def ask() -> None:
        for file in waiting:
            write(await _ask_one(client, file, name_in(folder, file), choice))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(num_concurrent):
                group.create_task(ask())
    except* (ClientError, OSError) as errors:
        raise errors.exceptions[0] from None


async def _ask_one(client: AsyncClient, file: Path, name: str, choice: Choice) -> ScoreRow:
    try:
        content = await asyncio.to_thread(file.read_bytes)
    except OSError as error:
        return ScoreRow(name, error=f"unreadable: {error.strerror}")
    try:
        return _row_of(name, await client.predict(content, **choice))
    except Refused as error:
        if error.code not in FILE_FAULTS:
            raise
        return ScoreRow(name, error=f"{error.code}: {error.message}")


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


# -- straight from a bundle ------------------------------------------------------------------------------------------


class BundleScorer:
    """A bundle and its engine, without a service around them."""

    def __init__(self, bundle: "Bundle", engine: "Engine", gate: "Gate") -> None:
        self._bundle, self._engine, self._gate = bundle, engine, gate

    def score(self, folder: Path, files: Sequence[Path], num_threads: int) -> Iterator[ScoreRow]:
        """Rows in the order of the files; the next batches are read and decoded while one runs."""
        with ThreadPoolExecutor(num_threads, "decode") as pool:
            ahead: deque[tuple[Path, Future[Pixels]]] = deque()
            for file in files:
                ahead.append((file, pool.submit(self._decode, file)))
                if len(ahead) >= 3 * BATCH_IMAGES:
                    yield from self._score_batch(folder, [ahead.popleft() for _ in range(BATCH_IMAGES)])
            while ahead:
                size = min(BATCH_IMAGES, len(ahead))
                yield from self._score_batch(folder, [ahead.popleft() for _ in range(size)])

    def _decode(self, file: Path) -> "Pixels":
        from portcullis.bundle.preprocess import decode

        return decode(file.read_bytes(), self._bundle.manifest.image)

    def _score_batch(self, folder: Path, batch: "list[tuple[Path, Future[Pixels]]]") -> list[ScoreRow]:
        import numpy as np

        rows: dict[Path, ScoreRow] = {}
        images: dict[Path, Pixels] = {}
        for file, future in batch:
            try:
                images[file] = future.result()
            except OSError as error:
                rows[file] = ScoreRow(name_in(folder, file), error=f"unreadable: {error.strerror}")
            except (BadImage, ImageTooLarge) as error:
                rows[file] = ScoreRow(name_in(folder, file), error=f"{error.code}: {error}")
        if images:
            outputs = self._engine.run(np.stack(list(images.values())))
            for file, probabilities, score, parts in zip(
                images, outputs.probabilities.tolist(), outputs.scores.tolist(), outputs.parts.tolist(), strict=True
            ):
                rows[file] = self._row(name_in(folder, file), probabilities, score, parts)
        return [rows[file] for file, _ in batch]

    def _row(self, name: str, probabilities: list[float], score: float, parts: list[float]) -> ScoreRow:
        from portcullis.bundle.gate import Row, decide

        manifest = self._bundle.manifest
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        row = Row(best, probabilities[best], score, parts)
        verdict, reason = decide(row, self._gate)
        return ScoreRow(
            name,
            manifest.name,
            manifest.version,
            manifest.labels[best],
            best,
            probabilities[best],
            _finite(self._gate.score_of(row)),
            _finite(parts[manifest.part_names.index(MMLES)]) if MMLES in manifest.part_names else None,
            self._gate.p_value(row),
            _finite(self._gate.threshold_for(best)),
            self._gate.operating_point,
            verdict.value,
            reason.value if reason is not None else None,
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
