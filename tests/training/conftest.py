"""A genuine small run that the tests of the later stages share: trained once, on digits, in a few seconds."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import Run, create_run, open_run

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
    run = create_run(tmp_path_factory.mktemp("runs"), config)
    fit(run, show_progress=False)
    return run.directory


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

    directory = tmp_path_factory.mktemp("evaluated") / trained_run_directory.name
    shutil.copytree(trained_run_directory, directory)
    calibrate(open_run(directory))
    evaluate(open_run(directory))
    return directory


@pytest.fixture
def evaluated_run(evaluated_run_directory: Path, tmp_path: Path) -> Run:
    """A copy of one's own to export and spoil."""
    directory = tmp_path / "evaluated" / evaluated_run_directory.name
    shutil.copytree(evaluated_run_directory, directory)
    return open_run(directory)
