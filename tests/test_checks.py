"""Lint and types, as `make check` looks at them: beside the other tests rather than before them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COMMANDS = [("mypy",), ("ruff", "check", "."), ("ruff", "format", "--check", ".")]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first time there is no cache
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_code_passes(command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_make_check_looks_at_the_same(command):
    assert f"\t$(BIN)/{' '.join(command)}\n" in (ROOT / "Makefile").read_text()
