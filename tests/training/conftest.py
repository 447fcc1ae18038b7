"""A genuine small run that the tests of the later stages share: trained once, on digits, in a few seconds."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import Run, create_run, open_run
from tests.once import once

# Two threads that wait for one another on a busy machine take many times as long as one.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def denormals_as_they_were() -> Iterator[None]:
    """Training flushes them for the whole process, which other tests share."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def trained_run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained, not yet calibrated; read only."""
    from portcullis_training.fitting.fit import fit

    config = RECIPES["digits"].model_copy(
        update={"name": "tiny-digits", "epochs": 4, "outside": ("noise:uniform", "shuffled"), "num_workers": 0}
    )
    runs = once(tmp_path_factory, "trained-once", lambda made: fit(create_run(made, config), show_progress=False))
    (directory,) = runs.iterdir()
    return directory


@pytest.fixture
def trained_run(trained_run_directory: Path, tmp_path: Path) -> Run:
    """A copy of one's own to calibrate, evaluate and spoil."""
    directory = tmp_path / "runs" / trained_run_directory.name
    shutil.copytree(trained_run_directory, directory)
    return open_run(directory)


@pytest.fixture(scope="session")
def evaluated_run_directory(trained_run_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibrated and evaluated too; read only."""
    from portcullis_training.measuring.calibration import calibrate
    from portcullis_training.measuring.evaluation import evaluate

    name = trained_run_directory.name

    def make(made: Path) -> None:
        shutil.copytree(trained_run_directory, made / name)
        calibrate(open_run(made / name))
        evaluate(open_run(made / name))

    return once(tmp_path_factory, "evaluated-once", make) / name


@pytest.fixture
def evaluated_run(evaluated_run_directory: Path, tmp_path: Path) -> Run:
    """A copy of one's own to export and spoil."""
    directory = tmp_path / "evaluated" / evaluated_run_directory.name
    shutil.copytree(evaluated_run_directory, directory)
    return open_run(directory)
