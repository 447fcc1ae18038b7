"""The cells of a comparison, a variant with a seed each, spread over as many processes as were started.

Nobody deals them out: the same command, given several times at once, takes the next cell that is neither done nor taken
by another. At the end each process waits for what others still have, so that each writes the whole table.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from portcullis_training.runs.directory import Run
from portcullis_training.runs.exclusive import alone, alone_unless_taken

Cell = TypeVar("Cell")


def spread(cells: Sequence[tuple[Cell, Run]]) -> Iterator[Cell]:
    """Each cell once, while no other process has its run; whoever comes second finds it done."""
    waiting = list(cells)
    while waiting:
        taken = []
        for cell, run in waiting:
            with alone_unless_taken(place(run)) as is_free:
                if is_free:
                    yield cell
                else:
                    taken.append((cell, run))
        if len(taken) == len(waiting):  # nothing is left but what others have: wait for the first of them
            cell, run = taken.pop(0)
            with alone(place(run)):
                yield cell
        waiting = taken


def place(run: Run) -> Path:
    """What a process holds while it works on a run."""
    return run.directory / "cell"
