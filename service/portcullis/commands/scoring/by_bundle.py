"""Rows straight from a bundle, in this process: the next batches are read and decoded while one runs."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from portcullis.bundle.engine import Engine
from portcullis.bundle.files import Bundle
from portcullis.bundle.gate import Gate, Row, decide
from portcullis.bundle.preprocess import Pixels, decode
from portcullis.commands.scoring.images import Images, name_of
from portcullis.commands.scoring.rows import ScoreRow, refused, unreadable
from portcullis.errors import BadImage, ImageTooLarge

BATCH_IMAGES = 32
MMLES = "mmles"


@dataclass
class Batch:
    """Images that run together, and the rows of those that cannot."""

    names: list[str]
    pixels: dict[str, Pixels]
    faults: dict[str, ScoreRow]


class BundleScorer:
    """A bundle, its engine and its gate, without a service around them."""

    def __init__(self, bundle: Bundle, engine: Engine, gate: Gate) -> None:
        self._bundle, self._engine, self._gate = bundle, engine, gate

    def score(self, images: Images, keys: Sequence[str], num_threads: int) -> Iterator[ScoreRow]:
        """Rows in the order of the keys."""
        num_threads = max(num_threads, images.reads_ahead)
        with ThreadPoolExecutor(num_threads, "decode") as pool:
            ahead: deque[Future[Batch]] = deque()
            for start in range(0, len(keys), BATCH_IMAGES):
                ahead.append(pool.submit(self.prepare, images, keys[start : start + BATCH_IMAGES]))
                if len(ahead) > num_threads:
                    yield from self.run(ahead.popleft().result())
            while ahead:
                yield from self.run(ahead.popleft().result())

    def prepare(self, images: Images, keys: Sequence[str]) -> Batch:
        """Read and decode; what cannot be is a row already."""
        batch = Batch([name_of(key) for key in keys], {}, {})
        for name, key in zip(batch.names, keys, strict=True):
            try:
                batch.pixels[name] = decode(images.read(key), self._bundle.manifest.image)
            except OSError as error:
                batch.faults[name] = unreadable(name, error)
            except (BadImage, ImageTooLarge) as error:
                batch.faults[name] = refused(name, error.code, str(error))
        return batch

    def run(self, batch: Batch) -> list[ScoreRow]:
        """Rows in the order of the names."""
        rows = batch.faults
        if batch.pixels:
            outputs = self._engine.run(np.stack(list(batch.pixels.values())))
            for name, probabilities, score, parts in zip(
                batch.pixels,
                outputs.probabilities.tolist(),
                outputs.scores.tolist(),
                outputs.parts.tolist(),
                strict=True,
            ):
                rows[name] = self._row(name, probabilities, score, parts)
        return [rows[name] for name in batch.names]

    def _row(self, name: str, probabilities: list[float], score: float, parts: list[float]) -> ScoreRow:
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
