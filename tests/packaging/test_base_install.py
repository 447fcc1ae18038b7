"""The base install is the client: what works in an environment that has nothing else."""

import json
import subprocess
import sys

import pytest

from tests.packaging.environments import run, try_to_run
from tests.service.pictures import RED

SERVERS_OWN = ("fastapi", "numpy", "PIL", "onnxruntime", "uvicorn", "orjson", "pydantic_settings", "prometheus_client")
LOADED = f"import sys; print([name for name in {SERVERS_OWN} if name in sys.modules])"
ASK = "from portcullis import Client; print(Client({url!r}).predict({image!r}).label); " + LOADED

pytestmark = pytest.mark.slow


@pytest.fixture
def image(tmp_path):
    (tmp_path / "red.png").write_bytes(RED)
    return str(tmp_path / "red.png")


def test_the_base_install_brings_nothing_of_the_server(base):
    absent = f"from importlib.util import find_spec; print([name for name in {SERVERS_OWN} if find_spec(name)])"
    assert run(base / "python", "-c", absent).strip() == "[]"


def test_the_client_asks_a_service(base, running_service, image, tmp_path):
    code = ASK.format(url=running_service.url, image=image)
    assert run(base / "python", "-c", code, directory=tmp_path).split() == ["red", "[]"]


def test_the_async_client_asks_a_service(base, running_service, image):
    code = (
        "import asyncio; from portcullis import AsyncClient\n"
        "async def ask():\n"
        f"    async with AsyncClient({running_service.url!r}) as client:\n"
        f"        print((await client.predict({image!r})).label)\n"
        "asyncio.run(ask())"
    )
    assert run(base / "python", "-c", code).strip() == "red"


def test_the_commands_ask_a_service(base, running_service, image, tmp_path):
    answer = json.loads(run(base / "portcullis", "predict", "--url", running_service.url, "--json", image))
    assert answer["answer"]["label"] == "red"
    assert "tiny" in run(base / "portcullis", "models", "--url", running_service.url)
    sheet = tmp_path / "scores.csv"
    run(base / "portcullis", "score", tmp_path, "--out", sheet, "--url", running_service.url)
    assert "red.png,tiny,1,red" in sheet.read_text()


@pytest.mark.parametrize("command", [[], ["serve"], ["predict"], ["score"], ["models"], ["gate"], ["review"]])
def test_help_works(base, command):
    assert "usage: portcullis" in run(base / "portcullis", *command, "--help")


@pytest.mark.parametrize("flags", [[], ["--port", "9000", "--gate", "accept99"]])
def test_serve_says_in_one_line_what_to_install(base, flags):
    done = try_to_run(base / "portcullis", "serve", *flags)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith("portcullis: portcullis serve needs more than the client")
    assert "pip install 'portcullis[cpu]'" in line


def test_training_says_in_one_line_what_to_install(base, tmp_path):
    assert "digits" in run(base / "portcullis-train", "recipes")
    done = try_to_run(base / "portcullis-train", "run", "--recipe", "digits", directory=tmp_path)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith("error: ") and "is missing: pip install 'portcullis[cpu,training]'" in line


def test_score_with_a_bundle_says_what_to_install(base, models, tmp_path, image):
    done = try_to_run(
        base / "portcullis", "score", tmp_path, "--out", tmp_path / "a.csv", "--bundle", models / "tiny" / "1"
    )
    assert (done.returncode, done.stderr.splitlines()[-1].startswith("portcullis: --bundle needs more")) == (1, True)


@pytest.mark.parametrize("code", ["import portcullis.client", "from portcullis.__main__ import main"])
def test_where_the_server_is_installed_too_the_client_leaves_it_alone(code):
    """Here everything is installed, so that what is loaded by mistake would show."""
    heavy = ("fastapi", "numpy", "PIL", "onnxruntime", "uvicorn")
    look = f"import sys; {code}; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout == "[]\n"
