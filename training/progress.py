"""What a person sees while training: a progress bar, and curves in TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm


class Progress:
    """One bar over the whole fit, counted in images, so that it shows images/s and the time left."""

    def __init__(
        self, directory: Path, num_images: int, num_done: int, num_epochs_done: int, *, is_shown: bool
    ) -> None:
        self._bar = tqdm(
            total=num_images,
            initial=num_done,
            unit="img",
            disable=not is_shown,
            dynamic_ncols=True,
            smoothing=0.05,
            mininterval=0.2 if sys.stderr.isatty() else 20,  # a log file needs no more
        )
        self._writer = SummaryWriter(str(directory), purge_step=num_epochs_done)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        self._writer.close()

    def advance(self, num_images: int) -> None:
        """A step is done."""
        self._bar.update(num_images)

    def show(self, epoch: int, num_epochs: int, loss: float, accuracy: float) -> None:
        """Figures of the epoch so far."""
        self._bar.set_description(f"epoch {epoch}/{num_epochs}", refresh=False)
        self._bar.set_postfix_str(f"loss {loss:.3f}, accuracy {accuracy:.1%}", refresh=False)

    def log(self, row: dict[str, float]) -> None:
        """The figures of a finished epoch."""
        for name, value in row.items():
            if name != "epoch":
                self._writer.add_scalar(name, value, int(row["epoch"]))


class NoProgress(Progress):
    """For the processes beside the main one: nothing is shown or written."""

    def __init__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def advance(self, num_images: int) -> None:
        """Nothing."""

    def show(self, epoch: int, num_epochs: int, loss: float, accuracy: float) -> None:
        """Nothing."""

    def log(self, row: dict[str, float]) -> None:
        """Nothing."""
