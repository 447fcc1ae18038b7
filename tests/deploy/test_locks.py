"""The locks of the serving images are those of pyproject.toml and constraints.txt, whole, by hash, from anywhere."""

import re

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from deploy.lock import EXTRAS, LOCKS, ROOT, WITH
from tests.packaging.requirements import EXTRAS as OWN_EXTRAS
from tests.packaging.requirements import PROJECT, unfolded

NAMES = (*EXTRAS, "build")


def locked(name: str) -> dict[str, str]:
    """Package → version; every line of the file is one, with at least one hash behind it."""
    text = (LOCKS / f"{name}.txt").read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines()[1:]:
        match = re.fullmatch(r"([a-z0-9-]+)==(\S+)(?: ; [^\\]+?)?((?:\s+--hash=sha256:[0-9a-f]{64})+)", line.strip())
        assert match, line
        found[match[1]] = match[2]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_says_what_and_never_from_where(name):
    text = (LOCKS / f"{name}.txt").read_text()
    assert locked(name)
    assert not re.search(r"https?:|--(extra-)?index-url|--find-links|--trusted-host|file:", text)


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_lock_has_all_that_is_asked_for(extra):
    versions = locked(extra)
    for requirement in unfolded(
        [*PROJECT["dependencies"], *OWN_EXTRAS[extra], *(each for name in WITH for each in OWN_EXTRAS[name])]
    ):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is missing: run `make lock`"
        assert requirement.specifier.contains(Version(version), prereleases=True), "stale: run `make lock`"


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_has_the_versions_that_the_tests_ran_with(name):
    text = (ROOT / "constraints.txt").read_text()
    pins = {canonicalize_name(pinned): version for pinned, version in re.findall(r"(?m)^(\S+?)==(\S+)$", text)}
    elsewhere = {"colorama"}  # on Windows only
    differing = {package for package, version in locked(name).items() if pins.get(package) != version}
    assert differing - elsewhere == set(), "run `make lock`"


def test_the_locks_differ_by_the_build_of_onnx_runtime_and_what_it_links():
    cpu, gpu = locked("cpu"), locked("gpu")
    assert cpu.keys() - gpu.keys() == {"onnxruntime"}
    more = gpu.keys() - cpu.keys() - {"onnxruntime-gpu"}
    assert all(package.startswith("nvidia-") for package in more)
    assert {package: version for package, version in gpu.items() if package in cpu}.items() <= cpu.items()
