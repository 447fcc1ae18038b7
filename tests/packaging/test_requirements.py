"""One list for each purpose, and no package in two of those that are installed together."""

from importlib import metadata

import pytest

from tests.packaging.requirements import EXTRAS, PROJECT, names, unfolded


def test_the_base_is_the_client():
    assert sorted(names(PROJECT["dependencies"])) == ["httpx", "pydantic", "tqdm"]


def test_cpu_and_gpu_differ_in_their_build_of_onnx_runtime_alone():
    assert set(names(EXTRAS["cpu"])) ^ set(names(EXTRAS["gpu"])) == {"onnxruntime", "onnxruntime-gpu"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_no_package_is_asked_for_twice(extra):
    asked = [*names(PROJECT["dependencies"]), *names(EXTRAS[extra])]
    assert sorted(set(asked)) == sorted(asked)


@pytest.mark.parametrize("name", ["prometheus-client", "uvicorn"])
def test_a_library_whose_internals_are_used_is_bounded_above(name):
    (requirement,) = [each for each in unfolded(EXTRAS["server"]) if each.name == name]
    assert [each.operator for each in requirement.specifier].count("<") == 1
    assert requirement.specifier.contains(metadata.version(name))
