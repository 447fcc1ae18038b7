"""What pyproject.toml asks for, an extra that names another of our extras unfolded."""

import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.environments import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def unfolded(lines: list[str]) -> list[Requirement]:
    found = []
    for requirement in map(Requirement, lines):
        if requirement.name == PROJECT["name"]:
            found += unfolded([line for extra in sorted(requirement.extras) for line in EXTRAS[extra]])
        else:
            found.append(requirement)
    return found


def names(lines: list[str]) -> list[str]:
    return [canonicalize_name(requirement.name) for requirement in unfolded(lines)]
