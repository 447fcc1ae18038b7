"""What a person sees while training: a progress bar, and curves in TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

# tqdm's own rate would be in units of work; ours is in images, and stands with the other figures.
BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"


class Progress:
    """One bar over the whole fit. It counts work, not images, so that the time left is right where sizes change."""

    def __init__(self, directory: Path, work: float, work_done: float, num_epochs_done: int, *, is_shown: bool) -> None:
        self._bar = tqdm(
            total=work,
            initial=work_done,
            bar_format=BAR,
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

    def advance(self, work: float) -> None:
        """A step is done."""
        self._bar.update(work)

    def show(self, epoch: int, num_epochs: int, loss: float, accuracy: float, images_per_second: float) -> None:
        """Figures of the epoch so far."""
        self._bar.set_description(f"epoch {epoch}/{num_epochs}", refresh=False)
        self._bar.set_postfix_str(
            f"loss {loss:.3f}, accuracy {accuracy:.1%}, {images_per_second:,.0f} images/s", refresh=False
        )

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

    def advance(self, work: float) -> None:
        """Nothing."""

    def show(self, epoch: int, num_epochs: int, loss: float, accuracy: float, images_per_second: float) -> None:
        """Nothing."""

    def log(self, row: dict[str, float]) -> None:
        """Nothing."""
