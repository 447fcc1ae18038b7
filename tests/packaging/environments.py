"""Fresh environments with the wheel in them, made outside the clone as a registry's user would make them."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "service", "training")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def build_wheel(sources: Sequence[str], directory: Path) -> Path:
    """The wheel of these files alone, so that nothing of an earlier build gets into it."""
    for name in sources:
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, directory / "source" / name, ignore=left_out)
        else:
            (directory / "source").mkdir(exist_ok=True)
            shutil.copy(ROOT / name, directory / "source" / name)
    run(*PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", directory / "wheels", directory / "source")
    (wheel,) = (directory / "wheels").iterdir()
    return wheel


def make_environment(directory: Path, *requirements: str) -> Path:
    """A virtual environment with these requirements and nothing of ours; gives its folder of programs."""
    venv.create(directory, with_pip=False)
    program = directory / "bin" / "python"
    run(*PIP, "--python", program, "install", "--quiet", "--no-compile", "-c", CONSTRAINTS, *requirements)
    return directory / "bin"


def skip_without_index(directory: Path) -> None:
    """What is missing after this is our mistake."""
    command = [*PIP, "download", "--quiet", "--no-deps", "--dest", directory, "-c", CONSTRAINTS, "annotated-types"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("the package index is out of reach: " + done.stderr.strip().splitlines()[-1])


def run(*command: str | Path, directory: Path | None = None, **variables: str) -> str:
    """What a command prints; it must succeed."""
    done = try_to_run(*command, directory=directory, **variables)
    assert done.returncode == 0, f"{command[:4]}: {done.stdout}{done.stderr}"
    return done.stdout


def try_to_run(
    *command: str | Path, directory: Path | None = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Without a variable of ours or of Python's that could lead back to the clone."""
    mine = ("PORTCULLIS_", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(mine)} | variables
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=directory, env=environment)
