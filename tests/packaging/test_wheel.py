"""The wheel with `[cpu]`, in an environment and a directory of its own: what a registry would ship, serving."""

import re
import urllib.request
import zipfile

import pytest

from tests.deploy.dockerfile import stages
from tests.packaging.environments import ROOT, build_wheel, run, skip_without_index
from tests.running import RunningService
from tests.service.pictures import RED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(cpu, models, tmp_path_factory):
    nowhere = tmp_path_factory.mktemp("nowhere")
    program = [cpu / "portcullis"]
    with RunningService(models, nowhere / "runtime", program=program, directory=nowhere) as service:
        yield service


def get(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.headers["content-type"], answer.read()


def test_nothing_of_the_clone_is_used(cpu, tmp_path):
    where = run(cpu / "python", "-c", "import portcullis; print(portcullis.__file__)", directory=tmp_path)
    assert where.startswith(str(cpu.parent))
    assert str(ROOT) not in run(cpu / "python", "-c", "import sys; print(sys.path)", directory=tmp_path)


def test_it_answers(served, cpu, tmp_path):
    (tmp_path / "red.png").write_bytes(RED)
    assert "red" in run(cpu / "portcullis", "predict", "--url", served.url, tmp_path / "red.png")


def test_the_console_comes_with_all_its_files(served):
    media, page = get(served.url + "/")
    assert media.startswith("text/html")
    linked = re.findall(r'(?:src|href)="([^"#:]+\.(?:js|css|svg))"', page.decode())
    assert len(linked) > 3
    for path in linked:
        assert get(f"{served.url}/{path.lstrip('/')}")[1]


def test_every_static_file_is_in_the_wheel(wheel):
    static = ROOT / "service" / "portcullis" / "api" / "console" / "static"
    files = {str(path.relative_to(ROOT / "service")) for path in static.rglob("*") if path.is_file()}
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert files - packed == set()
    assert {"portcullis/py.typed", "portcullis_training/py.typed"} <= packed
    assert {name.split("/")[0].split("-")[0] for name in packed} == {"portcullis", "portcullis_training"}


def test_the_documentation_page_needs_no_other_host(served):
    _, page = get(served.url + "/docs")
    for path in re.findall(r'(?:src|href)="([^"]+)"', page.decode()):
        assert not path.startswith("http"), path
        assert get(served.url + path)[1]
    assert b'"/v1/predict"' in get(served.url + "/openapi.json")[1]


def test_the_images_sources_make_a_wheel_without_training(tmp_path):
    """What the Dockerfile copies is enough to build from: setuptools passes over a source root that is not there."""
    skip_without_index(tmp_path)
    copied = [path.rstrip("/") for _, paths, _ in stages()["source"].copied() for path in paths]
    wheel = build_wheel(copied, tmp_path)
    assert {name.split("/")[0].split("-")[0] for name in zipfile.ZipFile(wheel).namelist()} == {"portcullis"}
