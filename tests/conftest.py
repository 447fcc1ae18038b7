"""Fixtures that several test folders share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from portcullis.bundle.files import Bundle
from tests import tiny
from tests.running import RunningService


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models directory with the tiny bundle; read only."""
    directory = tmp_path_factory.mktemp("models")
    tiny.write(directory)
    return directory


@pytest.fixture(scope="session")
def bundle(models: Path) -> Bundle:
    return Bundle(models / "tiny" / "1", tiny.manifest())


@pytest.fixture(scope="session")
def running_service(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """The tiny bundle, served by two real workers; shared by many tests, so none may stop it or change its gate."""
    with RunningService(models, tmp_path_factory.mktemp("runtime")) as service:
        yield service
