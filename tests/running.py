"""A real service in a process of its own, for tests that talk to it as a client would."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

READY = re.compile(r"is ready on (https?://\S+)")
ADMIN_KEY = "test-admin-secret"
DEADLINE_SECONDS = 120  # to an answer: a machine that stands still for a while is no reason for 504
START_SECONDS = 180  # of a busy machine; a service that fails ends, and that is seen at once


class RunningService:
    """`portcullis serve` on a free port; use as a context manager. `program`: what is run, `directory`: where."""

    def __init__(
        self,
        models: Path,
        runtime: Path,
        *flags: str,
        environment: dict[str, str] | None = None,
        program: Sequence[str | Path] = (sys.executable, "-m", "portcullis"),
        directory: Path | None = None,
        name: str = "serve",
    ) -> None:
        command = [*program, name, "--models", models, "--runtime-directory", runtime]
        usual = ["--port", "0", "--workers", "2", "--admin-keys", f"tester:{ADMIN_KEY}"]
        usual += ["--deadline-seconds", str(DEADLINE_SECONDS)]
        self.process = subprocess.Popen(
            [*map(str, command), *usual, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=directory,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("PORTCULLIS_")}, **(environment or {})},
        )
        self.runtime = runtime
        self.lines: list[str] = []
        self._found: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        url = self._found.get(timeout=START_SECONDS)
        if url is None:
            self.process.wait(10)
            raise RuntimeError("the service did not start:\n" + "\n".join(self.lines))
        self.url = url

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.lines.append(line.rstrip("\n"))
                if match := READY.search(line):
                    self._found.put(match.group(1))
        self._found.put(None)

    def workers(self) -> list[int]:
        """Process ids of the workers that live now, engine processes among them."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children]

    def engines(self) -> list[int]:
        """Those of them that are engine processes."""
        return [pid for pid in self.workers() if "portcullis.processes.engine" in _command(pid)]

    def fronts(self) -> list[int]:
        """Those of them that answer clients."""
        return [pid for pid in self.workers() if "portcullis.processes.worker" in _command(pid)]

    def stop(self, number: int = signal.SIGTERM, seconds: float = 30) -> int:
        """Send a signal and wait for the end."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def __enter__(self) -> "RunningService":
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
