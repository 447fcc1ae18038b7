"""Ways to hurt a running service, for tests/service/processes/test_faults.py and bench/faults.py."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from portcullis.processes.stores import DATABASE_FILE
from portcullis.store.followers import Followers
from portcullis.store.sqlite import Sqlite
from portcullis.store.state import StateStore
from portcullis.telemetry.collectors import expose
from tests import tiny
from tests.hammer import eventually
from tests.running import ADMIN_KEY, RunningService

SHARPNESS = {1: 1.0, 2: 1.5}
"""How the graph of each version was made."""
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
DAY = 86_400
DAMAGES = ("overwritten", "cut short", "removed")
BREAKABLE_ENGINE = """
import os, threading
import onnxruntime

def breakable(self, *arguments, run=onnxruntime.InferenceSession.run, file=os.environ["TEST_BREAK"]):
    with open(file) as stream:
        how, _, who = stream.read().partition(" ")
    if who in (str(os.getpid()), "everybody"):
        if how == "hang":
            threading.Event().wait()
        raise RuntimeError("the device has been lost")
    return run(self, *arguments)

onnxruntime.InferenceSession.run = breakable
"""
JUMPING_CLOCK = """
import os, time

def jumping(now=time.time, file=os.environ["TEST_CLOCK"]):
    try:
        with open(file) as stream:
            return now() + float(stream.read() or 0)
    except (OSError, ValueError):
        return now()

time.time = jumping
"""


def write_versions(directory):
    """Two versions that can be told apart by their scores."""
    for version, sharpness in SHARPNESS.items():
        tiny.write(directory, version=version, sharpness=sharpness)
    return directory


def serve(directory, runtime, *flags, **options):
    quiet = ("--log-requests-per-second", "0", "--serve", "tiny@1")
    return RunningService(directory, runtime, *quiet, *flags, **options)


def put_default(service, version):
    return httpx.put(f"{service.url}/v1/models/tiny/default", json={"version": version}, headers=ADMIN, timeout=30)


def default_of(service: RunningService) -> int:
    version: int = httpx.get(f"{service.url}/v1/models/tiny", timeout=30).json()["default_version"]
    return version


def metric(service: RunningService, name: str) -> float | None:
    """One without labels, as a worker tells it."""
    lines = httpx.get(f"{service.url}/metrics", timeout=30).text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"portcullis_{name} ")), None)


def kill_whole(service: RunningService) -> None:
    """SIGKILL to the supervisor, then to its workers."""
    workers = service.workers()
    os.kill(service.process.pid, signal.SIGKILL)
    service.process.wait()
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    eventually(lambda: has_ended(workers))


def damage_database(runtime: Path, damage: str) -> None:
    """As a failing disk, or a person, would: the file and its log."""
    for name in (DATABASE_FILE, f"{DATABASE_FILE}-wal"):
        part = runtime / name
        if damage == "removed":
            part.unlink(missing_ok=True)
        elif damage == "cut short":
            os.truncate(part, part.stat().st_size // 3)
        else:
            part.write_bytes(b"not a database" * 1000)


def store_of(runtime: Path) -> StateStore:
    """The desired state of a service that runs on this directory, as its own workers see it."""
    return StateStore(Sqlite(runtime / DATABASE_FILE))


def audit_of(runtime: Path) -> list[Any]:
    """The lines of its audit log, each as one flat dictionary."""
    return [{**line.pop("details"), **line} for line in store_of(runtime).audit()]


def num_behind(runtime: Path) -> int:
    """Workers of it that have not followed the desired state."""
    state = store_of(runtime).read()
    assert state is not None
    return len(Followers(Sqlite(runtime / DATABASE_FILE), "").behind(state.revision))


def num_counted(runtime, *only):
    """Answered images as the workers counted them; the files outlive the processes."""
    lines = expose(runtime / "metrics").decode().splitlines()
    wanted = [line for line in lines if line.startswith("portcullis_predictions_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in wanted if all(word in line for word in only))


def is_whole(service, num_workers=2):
    """Whether all workers live and say that they are ready."""
    with contextlib.suppress(httpx.HTTPError):
        text = httpx.get(f"{service.url}/metrics", timeout=5).text
        return f"portcullis_workers_ready {num_workers}.0" in text and len(service.workers()) == num_workers
    return False


def has_ended(pids):
    """Whether none of the processes lives; one that nobody has waited for yet has no open files any more."""
    return not any(Path(f"/proc/{pid}/fd").exists() for pid in pids)


def say_on_the_control_channel(service: RunningService, worker: int, said: bytes) -> None:
    """Say something to the supervisor in a worker's name: on the pipe that the two share, beside its standard ones."""

    def pipes(pid: int) -> dict[str, Path]:
        links = Path(f"/proc/{pid}/fd").iterdir()
        return {str(link.readlink()): link for link in links if str(link.readlink()).startswith("pipe:")}

    held = pipes(service.process.pid)
    shared = [link for pipe, link in pipes(worker).items() if pipe in held and int(link.name) > 2]
    with contextlib.suppress(BrokenPipeError), shared[0].open("wb", buffering=0) as channel:
        channel.write(said)


def jumping_clock(directory: Path) -> tuple[Path, dict[str, str]]:
    """A file with the seconds by which the wall clock is wrong, and the environment that makes a process believe it."""
    (directory / "sitecustomize.py").write_text(JUMPING_CLOCK)
    clock = directory / "clock"
    clock.write_text("0")
    return clock, {"PYTHONPATH": f"{directory}{os.pathsep}{Path.cwd()}", "TEST_CLOCK": str(clock)}


def breakable_engine(directory: Path) -> tuple[Path, dict[str, str]]:
    """A file that says whose engine breaks and how, `fail PID`, `hang PID` or `fail everybody`, and the environment."""
    (directory / "sitecustomize.py").write_text(BREAKABLE_ENGINE)
    broken = directory / "broken"
    broken.write_text("")
    return broken, {"PYTHONPATH": str(directory), "TEST_BREAK": str(broken), "ORT_DISABLE_TELEMETRY": "1"}


@contextlib.contextmanager
def small_disk(directory: Path, megabytes: int = 12) -> Iterator[Path]:
    """A disk of its own at `directory`."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(directory)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        raise PermissionError("mounting a small disk needs root")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with file.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(4096))
