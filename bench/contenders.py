"""Servers under test, each started in processes of its own and stopped again."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def portcullis(
    models: Path, *flags: str, name: str = "serve", environment: dict[str, str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Our own service with everything on; yields its address and its supervisor."""
    with tempfile.TemporaryDirectory() as runtime, tempfile.TemporaryFile("w") as log:
        command = [sys.executable, "-m", "portcullis", name, "--models", str(models), "--port", "0"]
        process = subprocess.Popen(
            [*command, "--runtime-directory", runtime, *flags],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if match := re.search(r"is ready on (http://\S+)", line):
                    yield match.group(1), process
                    break
            else:
                raise RuntimeError("the service did not start")
        finally:
            process.terminate()
            process.wait(60)
            if process.stdout is not None:
                process.stdout.close()


def children(process: subprocess.Popen[str]) -> list[int]:
    """Process ids of the workers."""
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert match is not None
    return int(match.group(1)) * 1024
