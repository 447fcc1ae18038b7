"""A PostgreSQL of our own in a temporary directory, from Debian's binaries; for tests and benches of a fleet."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.hammer import eventually

ROOT = 0
UNPRIVILEGED = "postgres"


def binaries() -> Path | None:
    """Where Debian keeps the newest, or wherever they are on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    if found:
        return found[-1].parent
    anywhere = shutil.which("initdb")
    return Path(anywhere).parent if anywhere else None


class Cluster:
    """One server on a free port; it can be stopped, killed and started again."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        self._directory, self._binaries = directory, binaries
        self._data = directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run("initdb", "-D", self._data, "-U", "portcullis", "--auth=trust", "--no-sync", "-E", "UTF8")

    def start(self) -> None:
        options = {"fsync": "off", "max_connections": "100", "unix_socket_directories": str(self._directory)}
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = [self._binaries / "postgres", "-D", self._data, "-h", "127.0.0.1", "-p", str(self.port), *flags]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **_account())
        eventually(self.is_up)

    def is_up(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.Error), psycopg.connect(self.url("postgres")):
            return True
        return False

    def stop(self, number: int = signal.SIGINT) -> None:
        """End it: SIGINT ends its sessions too; SIGQUIT is as good as a crash of the whole machine."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def url(self, database: str) -> str:
        return f"postgresql://portcullis@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The address of an empty one."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(part) for part in (self._binaries / program, *arguments)]
        subprocess.run(command, check=True, capture_output=True, **_account())


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A running one; raises FileNotFoundError where PostgreSQL is not installed."""
    found = binaries()
    if found is None:
        raise FileNotFoundError("PostgreSQL is not installed (Debian's postgresql)")
    directory = Path(tempfile.mkdtemp(prefix="portcullis-postgres-"))
    if os.getuid() == ROOT:
        shutil.chown(directory, UNPRIVILEGED)
    running = Cluster(directory, found)
    try:
        running.start()
        yield running
    finally:
        running.stop(signal.SIGQUIT)
        shutil.rmtree(directory, ignore_errors=True)


def _account() -> dict[str, object]:
    """PostgreSQL refuses to run as root."""
    return {"user": UNPRIVILEGED, "cwd": "/"} if os.getuid() == ROOT else {}
