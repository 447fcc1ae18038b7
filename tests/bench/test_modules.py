"""Every benchmark is a command of its own, so a name that went elsewhere is noticed by nobody until it is wanted."""

import importlib
from pathlib import Path

import bench


def test_every_module_can_be_imported():
    modules = sorted(path.stem for path in Path(next(iter(bench.__path__))).glob("[a-z]*.py"))
    assert "left_out" in modules
    for name in modules:
        importlib.import_module(f"bench.{name}")
