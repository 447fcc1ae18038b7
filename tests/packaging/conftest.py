from pathlib import Path

import pytest

from tests.once import once
from tests.packaging.environments import SOURCES, build_wheel, make_environment, skip_without_index


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_without_index(tmp_path_factory.mktemp("index"))
    built = once(tmp_path_factory, "wheel-once", lambda made: build_wheel(SOURCES, made))
    (wheel,) = (built / "wheels").iterdir()
    return wheel


@pytest.fixture(scope="session")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment that has the wheel and no extra."""
    return make_environment(tmp_path_factory.mktemp("base"), str(wheel))


@pytest.fixture(scope="session")
def cpu(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment that has the wheel with `[cpu]`."""
    return make_environment(tmp_path_factory.mktemp("cpu"), f"{wheel}[cpu]")
