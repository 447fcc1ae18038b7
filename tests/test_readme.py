"""The README's own lines, run as a newcomer runs them, against the bundle that ships with the repository."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from portcullis.client import Client
from tests.running import RunningService

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
ADDRESS = "http://127.0.0.1:8000"
CHANGING = ("request_id", "p_value", "probability", "score")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with RunningService(ROOT / "models", tmp_path_factory.mktemp("runtime")) as service:
        yield service


def sample(name):
    """The shell line behind a marker, and the JSON that the README shows under it."""
    pattern = rf"<!-- {name} -->\n```sh\n(.*?)\n```\n```json\n(.*?)\n```"
    match = re.search(pattern, README, re.DOTALL)
    assert match, f"the README shows no sample {name}"
    return match.group(1), json.loads(match.group(2))


@pytest.mark.parametrize("name", ["accepted", "rejected"])
def test_the_first_screen_shows_what_the_service_really_answers(service, name):
    line, shown = sample(name)
    command = shlex.split(line.replace(ADDRESS, service.url))
    answer = json.loads(subprocess.run([*command, "-s"], cwd=ROOT, check=True, capture_output=True).stdout)
    assert answer["verdict"] == name.removesuffix("ed")
    assert answer.keys() == shown.keys()
    assert {k: answer[k] for k in answer if k not in (*CHANGING, "top")} == {
        k: shown[k] for k in shown if k not in (*CHANGING, "top")
    }
    for field in ("probability", "score", "p_value"):
        assert answer[field] == pytest.approx(shown[field], abs=0.02)


def test_of_the_examples_the_cat_alone_passes_as_the_readme_says(service):
    with Client(service.url) as client:
        answers = {path.stem: client.predict(path) for path in (ROOT / "docs" / "examples").glob("*.jpg")}
    assert len(answers) == 6
    assert [name for name, answer in answers.items() if answer.verdict == "accept"] == ["cat"]
    assert "of the six pictures in `docs/examples` it lets the cat pass, and nothing else" in " ".join(README.split())


def test_who_names_no_model_asks_the_one_that_the_models_directory_names(service):
    name = (ROOT / "models" / "default").read_text().strip()
    with Client(service.url) as client:
        assert client.predict(ROOT / "docs" / "examples" / "cat.jpg").model == name


def test_the_python_sample_runs(service):
    code = re.search(r"```python\n(.*?)\n```", README, re.DOTALL).group(1).replace(ADDRESS, service.url)
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert run.stdout.strip() == sample("accepted")[1]["label"]


def test_every_make_target_of_the_readme_exists_and_help_lists_all():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert targets == set(re.findall(r"make ([a-z-]+)", shown))


def test_no_file_names_a_path_of_a_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for file in listed.split():
        if file.endswith((".md", ".py", ".toml", ".yml", ".yaml", ".json")):
            assert "/work/" + "scratch" not in (ROOT / file).read_text(), file
