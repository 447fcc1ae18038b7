"""Fixtures that several test folders share."""

from pathlib import Path

import pytest

from service.bundle import Bundle
from tests import tiny


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models directory with the tiny bundle; read only."""
    directory = tmp_path_factory.mktemp("models")
    tiny.write(directory)
    return directory


@pytest.fixture(scope="session")
def bundle(models: Path) -> Bundle:
    return Bundle(models / "tiny" / "1", tiny.manifest())
