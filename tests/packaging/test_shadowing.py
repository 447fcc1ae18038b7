"""What lies in the current directory never takes the place of our packages, in the supervisor or in a worker."""

import sys
import sysconfig
from pathlib import Path

import pytest

from portcullis.client import Client
from tests.running import RunningService
from tests.service.pictures import RED

pytestmark = pytest.mark.slow
MARK = "from pathlib import Path; Path(__file__).with_name('was-imported').touch(); raise SystemExit('not yours')\n"
CONSOLE_SCRIPT = Path(sysconfig.get_path("scripts")) / "portcullis"
SOURCE_ROOTS = ("service", "training")  # names that packages of ours once had, and that others have
OWN_PACKAGES = (*(f"{name}/__init__.py" for name in SOURCE_ROOTS), "uvicorn.py", "logging.py")


def put(directory, *files):
    for file in files:
        (directory / file).parent.mkdir(exist_ok=True)
        (directory / file).write_text(MARK)
    return directory


def answers(models, directory, program):
    place = RunningService(models, directory / "runtime", program=program, directory=directory)
    with place as service, Client(service.url) as client:
        label = client.predict(RED).label
    return label, list(directory.rglob("was-imported"))


@pytest.mark.parametrize("file", ["portcullis.py", "portcullis/__init__.py"])
def test_the_command_runs_ours_where_others_have_the_same_name(file, models, tmp_path):
    put(tmp_path, file, "portcullis_training.py", *OWN_PACKAGES)
    assert answers(models, tmp_path, [CONSOLE_SCRIPT]) == ("red", [])


def test_python_with_the_safe_path_runs_ours(models, tmp_path):
    put(tmp_path, "portcullis.py", *OWN_PACKAGES)
    assert answers(models, tmp_path, [sys.executable, "-P", "-m", "portcullis"]) == ("red", [])


def test_python_m_runs_ours_unless_the_directory_has_a_portcullis_of_its_own(models, tmp_path):
    """That one Python finds before any line of ours runs; docs/operations.md says what to type instead."""
    put(tmp_path, *(f"{name}/__init__.py" for name in SOURCE_ROOTS))
    assert answers(models, tmp_path, [sys.executable, "-m", "portcullis"]) == ("red", [])


def test_a_python_path_is_followed_by_workers_as_by_the_supervisor(models, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "sitecustomize.py").write_text(
        f"import os; open({str(tmp_path)!r} + f'/seen-{{os.getpid()}}', 'w').close()\n"
    )
    environment = {"PYTHONPATH": str(tmp_path / "more")}
    with RunningService(
        models, tmp_path / "runtime", program=[CONSOLE_SCRIPT], directory=tmp_path, environment=environment
    ) as service:
        seen = {int(path.name.removeprefix("seen-")) for path in tmp_path.glob("seen-*")}
        assert {service.process.pid, *service.workers()} <= seen
