"""A PostgreSQL of our own in a temporary directory, from Debian's binaries; for tests and benches of a fleet."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.hammer import eventually

ROOT = 0
UNPRIVILEGED = "postgres"
AS_UNPRIVILEGED = ("setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups", "--")
LOCAL = "127.0.0.1"


def binaries() -> Path | None:
    """Where Debian keeps the newest, or wherever they are on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    if found:
        return found[-1].parent
    anywhere = shutil.which("initdb")
    return Path(anywhere).parent if anywhere else None


class Cluster:
    """One server on a free port; it can be stopped, killed and started again."""

    def __init__(
        self, directory: Path, binaries: Path, host: str = LOCAL, within: Sequence[str] = (), **options: str
    ) -> None:
        """`within`: what stands before its command, where it runs in a namespace of its own."""
        self._directory, self._binaries, self._host, self._within = directory, binaries, host, within
        self._options = {"fsync": "off", "max_connections": "100", "unix_socket_directories": str(directory)} | options
        self._data = directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind((LOCAL, 0))
            self.port = free.getsockname()[1]
        command = [self._binaries / "initdb", "-D", self._data, "-U", "portcullis", "--auth=trust", "--no-sync"]
        subprocess.run([str(part) for part in (*command, "-E", "UTF8")], check=True, capture_output=True, **_account())
        if host != LOCAL:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet trust\n")

    def start(self) -> None:
        flags = [part for name, value in self._options.items() for part in ("-c", f"{name}={value}")]
        command = [self._binaries / "postgres", "-D", self._data, "-h", self._host, "-p", str(self.port), *flags]
        account = _account()
        if self._within:  # only root enters a namespace
            account = {"cwd": "/"}
            command = [*self._within, *AS_UNPRIVILEGED, *command]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **account)
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

    def has_ended(self) -> bool:
        """Whether it gave up by itself."""
        if self._process is None or self._process.poll() is None:
            return False
        self._process = None
        return True

    def url(self, database: str) -> str:
        return f"postgresql://portcullis@{self._host}:{self.port}/{database}"

    def new_database(self) -> str:
        """The address of an empty one."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def log(self) -> str:
        return (self._directory / "log").read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)


@contextlib.contextmanager
def cluster(
    directory: Path | None = None, host: str = LOCAL, within: Sequence[str] = (), **options: str
) -> Iterator[Cluster]:
    """A running one, in a directory where one is given; raises FileNotFoundError where PostgreSQL is not installed."""
    found = binaries()
    if found is None:
        raise FileNotFoundError("PostgreSQL is not installed (Debian's postgresql)")
    with tempfile.TemporaryDirectory(prefix="portcullis-postgres-", dir=directory, ignore_cleanup_errors=True) as home:
        for owned in (directory, home):
            if os.getuid() == ROOT and owned is not None:
                shutil.chown(owned, UNPRIVILEGED)
        running = Cluster(Path(home), found, host, within, **options)
        try:
            running.start()
            yield running
        finally:
            running.stop(signal.SIGQUIT)


def _account() -> dict[str, object]:
    """PostgreSQL refuses to run as root."""
    return {"user": UNPRIVILEGED, "cwd": "/"} if os.getuid() == ROOT else {}
