"""Fixtures that several test folders share."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from portcullis.bundle.files import Bundle
from portcullis.processes.stores import DATABASE_FILE, open_local
from portcullis.store.database import Database
from portcullis.store.postgresql import Postgres
from portcullis.store.schema import migrate
from portcullis.store.sqlite import Sqlite
from tests import postgres, tiny
from tests.hammer import PATIENCE_SECONDS
from tests.running import RunningService

# A machine may stand still for longer than httpx waits by itself; whoever tests for an answer in time says so.
for _wait in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _wait, PATIENCE_SECONDS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the most long tests first: where several processes share them, none is left with one at the end."""
    num_slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -num_slow[item.path])


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


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    """A PostgreSQL of the tests' own; who stops it starts it again."""
    try:
        with postgres.cluster() as cluster:
            yield cluster
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Sqlite]:
    """The database of an instance in its runtime directory, which is the test's own."""
    database = Sqlite(tmp_path / DATABASE_FILE)
    open_local(database)
    yield database
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Database:
    """Each engine in turn, with empty tables."""
    if request.param == "sqlite":
        found: Database = request.getfixturevalue("local")
        return found
    return request.getfixturevalue("fleet")


@pytest.fixture(scope="session")
def fleet_url(cluster: postgres.Cluster) -> str:
    """A database for tests that each begin with empty tables; a machine that stands still for a moment is no fault."""
    return f"{cluster.new_database()}?connect_timeout=60&options=-c%20statement_timeout%3D60000"


@pytest.fixture
def fleet(fleet_url: str) -> Postgres:
    """The database of a fleet, with empty tables."""
    shared = Postgres(fleet_url)
    with shared.writing() as session:
        session.run("DROP SCHEMA public CASCADE")
        session.run("CREATE SCHEMA public")
    migrate(shared)
    return shared
