"""A real build of the `cpu` target, and the container that comes of it: `make image-test`.

No registry is asked: the base is made by mmdebstrap and passed as the build argument, the wheels are fetched by their
hashes before the build and mounted into it. buildah's chroot isolation needs no more than root.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.dockerfile import ROOT

VARIABLE = "IMAGE_TEST"
TOOLS = ("buildah", "mmdebstrap")
BASE, IMAGE = "localhost/portcullis-base", "localhost/portcullis:cpu"
SUITE, PYTHON = "bookworm", "3.11"
CACHE = Path.home() / ".cache" / "portcullis"
PIP = "[global]\nno-index = true\nfind-links = /wheels\ndisable-pip-version-check = true\n"
missing = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"takes minutes: run `make image-test` ({VARIABLE}=1)"),
    pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} (Debian packages) are missing"),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root"),
]


def run(*command: str | Path) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def make_base() -> None:
    """Debian with Python and nothing else, as an image; kept between runs."""
    archive = CACHE / f"{SUITE}-python.tar"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        draft = CACHE / f"draft-{os.getpid()}.tar"
        run("mmdebstrap", "--variant=minbase", "--include=python3,python3-venv", SUITE, draft)
        draft.rename(archive)
    container = run("buildah", "from", "scratch").strip()
    run("buildah", "add", "--quiet", container, archive, "/")
    run("buildah", "commit", "--quiet", "--rm", container, BASE)


def fetch_wheels(directory: Path) -> None:
    """What the locks name, for the Python of the base; another file than theirs is refused."""
    locks = [flag for name in ("build", "cpu") for flag in ("--requirement", ROOT / "deploy" / "locks" / f"{name}.txt")]
    platforms = [
        flag
        for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
        for flag in ("--platform", f"{tag}_x86_64")
    ]
    choice = ["--python-version", PYTHON, "--implementation", "cp", "--only-binary", ":all:", *platforms]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    run(*pip, *choice, "--dest", directory, *locks)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("image")
    (directory / "wheels").mkdir()
    (directory / "pip.conf").write_text(PIP)
    make_base()
    fetch_wheels(directory / "wheels")
    mounted = ["--volume", f"{directory}/wheels:/wheels:ro", "--volume", f"{directory}/pip.conf:/etc/pip.conf:ro"]
    build = ["buildah", "build", "--isolation", "chroot", "--format", "docker", "--layers", "--target", "cpu"]
    run(*build, "--build-arg", f"PYTHON_IMAGE={BASE}", *mounted, "--tag", IMAGE, ".")
    return IMAGE


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[str]:
    name = run("buildah", "from", image).strip()
    yield name
    run("buildah", "rm", name)


def inside(container: str, *command: str, variables: dict[str, str] | None = None) -> list[str]:
    settings = [flag for name, value in (variables or {}).items() for flag in ("--env", f"{name}={value}")]
    return ["buildah", "run", "--isolation", "chroot", *settings, container, "--", *command]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def descendants(process: int) -> list[int]:
    """Children of any of its threads, and theirs."""
    texts = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    return [found for child in map(int, " ".join(texts).split()) for found in (child, *descendants(child))]


def is_python(process: int) -> bool:
    command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    return Path(command[0].decode()).name.startswith("python")


@contextlib.contextmanager
def serving(container: str, entry: list[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The image's own command, as its own user, on a port of this machine."""
    port = free_port()
    process = subprocess.Popen(
        inside(container, *entry, variables={"PORTCULLIS_PORT": str(port)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "is ready on" in line:
                break
        else:
            raise AssertionError("".join(lines))
        yield f"http://127.0.0.1:{port}", process
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """SIGTERM to the supervisor itself: what stands before it here is not what a container engine would have."""
    if process.poll() is None:
        supervisor = next(child for child in descendants(process.pid) if is_python(child))
        os.kill(supervisor, signal.SIGTERM)
    process.communicate(timeout=60)


def test_the_image_answers_as_the_readme_says_and_drains_when_told(container):
    config = json.loads(run("buildah", "inspect", "--type", "image", IMAGE))["Docker"]["config"]
    assert config["User"] == "10001:10001"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    with serving(container, [*config["Entrypoint"], *config["Cmd"]]) as (url, process):
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as answer:
            assert json.load(answer) == {"status": "ready", "provider": "cpu", "is_fallback": False}
        picture = (ROOT / "docs" / "examples" / "cat.jpg").read_bytes()
        with urllib.request.urlopen(f"{url}/v1/predict", data=picture, timeout=30) as answer:
            said = json.load(answer)
        assert (said["model"], said["label"], said["verdict"]) == ("pets", "Bengal", "accept")
        owners = {Path(f"/proc/{child}").stat().st_uid for child in descendants(process.pid) if is_python(child)}
        assert owners == {10001}
    assert process.returncode == 0


def test_the_image_holds_what_serves_and_nothing_that_installs_or_trains(container):
    def has(module: str) -> bool:
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        return subprocess.run(inside(container, "python", "-c", code), check=False, capture_output=True).returncode == 0

    assert [module for module in ("portcullis", "onnxruntime", "fastapi") if not has(module)] == []
    assert [module for module in ("portcullis_training", "torch", "pip", "setuptools") if has(module)] == []
    refused = subprocess.run(inside(container, "touch", "/srv/models/x"), check=False, capture_output=True)
    assert refused.returncode != 0, "its user may write to the runtime directory only"
