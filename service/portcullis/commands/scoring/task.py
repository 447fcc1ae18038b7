"""What is to be scored, and how, in a form that goes to another process or another machine; cut into blocks.

Whoever runs the blocks, here or on a cluster, opens the task once a process: the same blocks give the same rows.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from portcullis.bundle.engine import start
from portcullis.bundle.files import Bundle, load_bundle
from portcullis.bundle.promises import choose
from portcullis.bundle.providers import EngineOptions
from portcullis.commands.scoring.by_bundle import BATCH_IMAGES, BundleScorer
from portcullis.commands.scoring.images import Images
from portcullis.commands.scoring.rows import ScoreRow

BLOCK_IMAGES = 8 * BATCH_IMAGES


@dataclass(frozen=True)
class Task:
    """A bundle, a gate, images."""

    bundle: Path
    gate: str
    """An operating point, or a threshold."""
    images: Images
    threads: int = 1
    """Of the engine, and at least as many to decode."""
    files: tuple[tuple[str, bytes], ...] = ()
    """The bundle's own, where the task goes to machines that may not have it."""

    def packed(self) -> "Task":
        """With the files of the bundle in it."""
        files = sorted(file for file in self.bundle.rglob("*") if file.is_file())
        return replace(self, files=tuple((str(file.relative_to(self.bundle)), file.read_bytes()) for file in files))

    def open(self) -> "OpenTask":
        return OpenTask(self, load_bundle(self._place()))

    def _place(self) -> Path:
        if not self.files:
            return self.bundle
        directory = Path(tempfile.mkdtemp(prefix="portcullis-bundle-")) / self.bundle.name
        for name, content in self.files:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
        return directory


class OpenTask:
    """A task in a process that scores."""

    def __init__(self, task: Task, bundle: Bundle) -> None:
        self._task = task
        engine = start(bundle, EngineOptions(threads=task.threads))
        self._scorer = BundleScorer(bundle, engine, choose(task.gate, bundle.manifest))

    def score(self, block: Sequence[str]) -> list[ScoreRow]:
        return list(self._scorer.score(self._task.images, block, self._task.threads))


def blocks(keys: Sequence[str]) -> list[list[str]]:
    """What is handed out at a time."""
    return [list(keys[start : start + BLOCK_IMAGES]) for start in range(0, len(keys), BLOCK_IMAGES)]
