"""docs/clients.md does what it says: its Python runs, its commands end well, its numbers are those of the code."""

import inspect
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from portcullis.__main__ import main
from portcullis.answering import review_queue as review
from portcullis.client import Retries
from portcullis.client.configuration import Configuration
from portcullis.commands.scoring.rows import ScoreRow
from tests import tiny
from tests.hammer import eventually
from tests.running import ADMIN_KEY
from tests.service.pictures import BROKEN, RED, encode

DOCUMENT = (Path(__file__).parents[3] / "docs" / "clients.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", DOCUMENT, re.S)
COMMANDS = re.findall(r"^\$ (portcullis .*)$", DOCUMENT, re.M)


@pytest.fixture
def place(reviewed_service, tmp_path, monkeypatch):
    """A folder with the files that the document speaks of, and its service."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PORTCULLIS_URL", reviewed_service.url)
    monkeypatch.setenv("PORTCULLIS_API_KEY", ADMIN_KEY)
    Path("photo.jpg").write_bytes(RED)
    Path("broken.jpg").write_bytes(BROKEN)
    Path("photos").mkdir()
    Path("photos/one.png").write_bytes(RED)
    return reviewed_service


def test_the_python_runs(place):
    names = {}  # as a reader would, one block after the other in one session
    for number, program in enumerate(PYTHON):
        program = program.replace("a-long-secret", ADMIN_KEY).replace("MODEL", "tiny")
        address = r'Client\("http://127.0.0.1:8000"(, key="[^"]*")?'
        program = re.sub(address, f'Client("{place.url}", key="{ADMIN_KEY}"', program)
        exec(compile(program, f"docs/clients.md, block {number}", "exec"), names)
    assert len(PYTHON) == 7 and names["careful"].label == "red"


def test_the_commands_end_well(place, models, capsys):
    first, second = _two_items(capsys)
    assert len(COMMANDS) == 14
    for command in COMMANDS:
        words = shlex.split(command.replace("MODELS/MODEL", str(models / "tiny")).replace("MODEL", "tiny"))[1:]
        words = [{"ID": first, "OTHER": second}.get(word, word) for word in words]
        assert main(words) == 0, command
    assert (Path("new-images") / "cat" / f"{first}.png").exists()
    assert Path("scores.parquet").exists() and len(Path("scores.csv").read_text().splitlines()) == 2
    main(["review", "reopen", first, second])


def _two_items(capsys):
    random = np.random.default_rng(91)
    for number in range(2):
        pixels = random.integers(0, 256, (tiny.SIZE, tiny.SIZE, 3), dtype=np.uint8)
        Path(f"odd-{number}.png").write_bytes(encode(pixels))
    main(["predict", "odd-0.png", "odd-1.png"])
    capsys.readouterr()

    def items():
        main(["review", "list", "--state", "open", "--json"])
        found = [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]
        return found[:2] if len(found) > 1 else None

    return eventually(items)


def test_the_numbers_are_those_of_the_code():
    configuration = Configuration()
    assert f"({configuration.max_batch_files} files, {configuration.max_batch_bytes // 2**20} MiB)" in DOCUMENT
    assert f"({review.MAX_WAITING_ITEMS} images, {review.MAX_WAITING_BYTES // 2**20} MiB)" in DOCUMENT
    assert Retries().max_attempts == 5 and "five attempts by default" in DOCUMENT
    columns = ", ".join(inspect.signature(ScoreRow).parameters)
    assert columns in DOCUMENT.replace("\n", " ")
