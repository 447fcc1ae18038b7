import os
from pathlib import Path

import pytest
from filelock import FileLock

from tests.packaging.environments import SOURCES, build_wheel, make_environment, skip_without_index


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, by whichever of the processes that share out the tests comes first."""
    skip_without_index(tmp_path_factory.mktemp("index"))
    own = tmp_path_factory.getbasetemp()
    directory = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "wheel"
    with FileLock(f"{directory}.lock"):
        if not (directory / "wheels").exists():
            directory.mkdir()
            return build_wheel(SOURCES, directory)
    (wheel,) = (directory / "wheels").iterdir()
    return wheel


@pytest.fixture(scope="session")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment that has the wheel and no extra."""
    return make_environment(tmp_path_factory.mktemp("base"), str(wheel))


@pytest.fixture(scope="session")
def cpu(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment that has the wheel with `[cpu]`."""
    return make_environment(tmp_path_factory.mktemp("cpu"), f"{wheel}[cpu]")
