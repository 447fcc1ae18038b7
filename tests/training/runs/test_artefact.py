"""What a run keeps is only read back where everything that it was computed from is still the same."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from portcullis_training.errors import ConfigError
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.artefact import Artefact
from portcullis_training.runs.directory import Run, create_run


class Found(BaseModel):
    value: float


FOUND = Artefact("found.json", Found, "measure")
ORIGINS = {"weights": "abc", "settings": "default"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create_run(tmp_path, RECIPES["digits"])


def test_what_was_written_is_read_back_with_the_same_origins_only(run: Run) -> None:
    FOUND.write(run, Found(value=0.1), ORIGINS)
    assert FOUND.read(run, ORIGINS) == Found(value=0.1)
    with pytest.raises(ConfigError, match=r"found.json was computed from other settings .* measure again"):
        FOUND.read(run, {**ORIGINS, "settings": "others"})
    with pytest.raises(ConfigError, match="other images"):  # an origin that nobody thought of when it was written
        FOUND.read(run, {**ORIGINS, "images": "def"})


def test_a_missing_file_names_the_command_that_makes_it(run: Run) -> None:
    with pytest.raises(ConfigError, match=r"no found\.json yet; run `portcullis-train measure`"):
        FOUND.read(run, ORIGINS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"value": 0.1}', "does not say what it was computed from"),
        ("{", "Expecting"),
        ('{"computed_from": {"weights": "abc", "settings": "default"}, "content": {}}', "Field required"),
    ],
)
def test_another_file_of_that_name_is_refused_with_the_reason(run: Run, text: str, reason: str) -> None:
    FOUND.path(run).write_text(text)
    with pytest.raises(ConfigError, match=f"{reason}.*measure again"):
        FOUND.read(run, ORIGINS)


def test_an_artefact_can_be_the_origin_of_another(run: Run) -> None:
    FOUND.write(run, Found(value=0.1), ORIGINS)
    first = FOUND.digest(run)
    FOUND.write(run, Found(value=0.1), ORIGINS)
    assert FOUND.digest(run) == first
    FOUND.write(run, Found(value=0.2), ORIGINS)
    assert FOUND.digest(run) != first
