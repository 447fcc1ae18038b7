"""The README's tree is the real one: every room and first module of both packages, one line each, and nothing else."""

import re
import subprocess

import pytest

from tests.documents.pages import ROOT

README = (ROOT / "README.md").read_text()
PACKAGES = ("service/portcullis", "training/portcullis_training")


def lines():
    tree = re.search(r"<!-- tree -->\n```\n(.*?)```", README, re.DOTALL)[1]
    return [re.fullmatch(r"( *)(\S+) {2,}(\S.*)", line).groups() for line in tree.splitlines()]


def below(package):
    """The names that the tree has below a package."""
    start = lines().index(next(line for line in lines() if line[1] == f"{package}/")) + 1
    found = []
    for indent, name, _ in lines()[start:]:
        if not indent:
            break
        found.append(name)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_of_a_package_has_its_line(package):
    rooms = [f"{path.name}/" for path in (ROOT / package).iterdir() if (path / "__init__.py").exists()]
    modules = [path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    assert sorted(below(package)) == sorted(rooms + modules)


def test_every_folder_of_the_repository_has_its_line():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {line.split("/")[0] for line in tracked.splitlines() if "/" in line and not line.startswith(".")}
    shown = {name.split("/")[0] for indent, name, _ in lines() if not indent}
    assert shown == folders
