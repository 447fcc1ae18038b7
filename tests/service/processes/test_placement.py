"""What a machine runs on: how trials of several devices become one answer, and how many workers that means."""

import sys
from pathlib import Path

import pytest

from portcullis.bundle.session import has_gpu_build
from portcullis.errors import EngineError
from portcullis.processes.placement import (
    Placement,
    Trial,
    engine_options,
    merge,
    place,
    placed_options,
    worker_engines,
)
from portcullis.settings import Settings
from tests.running import RunningService

CUDA_OR_CPU = ("cuda", "cpu")
BROKEN = Trial("cpu", ("cuda does not start here: CUDA failure 999",))
ON_TWO_DEVICES = """
import sys
from portcullis.processes import supervisor
from portcullis.processes.placement import Placement
supervisor.place = lambda settings, bundles: Placement("cpu", ("1", "MIG-3f"))
from portcullis.__main__ import main
sys.exit(main())
"""
on_a_cpu_build = pytest.mark.skipif(has_gpu_build(), reason="onnxruntime's build for GPUs is installed")


@pytest.mark.parametrize(
    ("options", "placement", "num_cores", "expected"),
    [
        ({}, Placement(), 4, [None] * 4),
        ({}, Placement("cuda", ("0", "1")), 4, [0, 1, 0, 1]),
        ({}, Placement("cuda", ("MIG-a", "MIG-b", "MIG-c")), 2, [0, 1, 2]),
        ({"workers": 3}, Placement("cuda", ("0", "1")), 16, [0, 1, 0]),
        ({"workers": 3}, Placement(), 16, [None] * 3),
        ({}, Placement("cpu", (), ("cuda does not start here",)), 8, [None] * 8),
    ],
)
def test_one_worker_a_core_and_on_gpus_at_least_one_for_each(options, placement, num_cores, expected):
    assert worker_engines(Settings.model_validate(options), placement, num_cores) == expected


def test_all_devices_that_start_are_used():
    assert merge(("0", "1"), [Trial("cuda", ()), Trial("cuda", ())], CUDA_OR_CPU) == Placement("cuda", ("0", "1"))


def test_a_device_that_does_not_start_is_left_out_and_named():
    found = merge(("0", "1"), [Trial("cuda", ()), BROKEN], CUDA_OR_CPU)
    assert found == Placement("cuda", ("0",), ("device 1: cuda does not start here: CUDA failure 999",))


def test_without_a_device_that_starts_the_cpu_serves_and_the_reason_is_said_once():
    assert merge(("0",), [BROKEN], CUDA_OR_CPU) == Placement("cpu", (), BROKEN.refusals)
    assert merge((), [BROKEN], CUDA_OR_CPU) == Placement("cpu", (), BROKEN.refusals)


def test_a_worker_is_told_what_was_found_and_tries_nothing_else():
    settings = Settings.model_validate({"providers": "auto", "runtime_directory": "run"})
    options = placed_options(settings, Placement("cpu", (), ("cuda does not start here",)))
    assert (options.providers, options.asked, options.allow_fallback) == (("cpu",), ("auto",), False)
    assert options.refusals == ("cuda does not start here",)
    assert str(options.tensorrt_cache) == "run/tensorrt"


def test_devices_have_numbers_or_uuids_in_every_source():
    assert Settings.model_validate({"device_ids": [0, 2]}).device_ids == ("0", "2")
    assert Settings.model_validate({"device_ids": "1, MIG-4f"}).device_ids == ("1", "MIG-4f")


def test_tensorrt_plans_for_the_batches_of_a_device_even_where_the_cpu_may_have_to_stand_in():
    assert engine_options(Settings()).max_batch == 64
    assert engine_options(Settings(max_batch=16)).max_batch == 16


@on_a_cpu_build
def test_the_cpu_needs_no_trial(monkeypatch):
    def forbidden(*arguments: object, **options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.Popen", forbidden)
    for providers in ("auto", "cpu"):
        assert place(Settings.model_validate({"providers": providers}), []) == Placement()


@on_a_cpu_build
@pytest.mark.slow
def test_a_trial_in_a_process_of_its_own_says_why_a_provider_does_not_start(models, tmp_path):
    settings = {"runtime_directory": tmp_path, "providers": "cuda"}
    with pytest.raises(EngineError, match="cuda does not start here: this is onnxruntime's build for CPUs"):
        place(Settings.model_validate(settings), [models / "tiny" / "1"])
    found = place(Settings.model_validate(settings | {"allow_fallback": True}), [models / "tiny" / "1"])
    assert found.provider == "cpu"
    assert len(found.refusals) == 1


@on_a_cpu_build
@pytest.mark.slow
def test_a_trial_that_dies_without_a_word_is_a_refusal_too(models, tmp_path, monkeypatch):
    """As when a driver ends the process: here the interpreter itself is one that does."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    settings = {"runtime_directory": tmp_path, "providers": "cuda"}
    with pytest.raises(EngineError, match="the trial ended with status 1 and said nothing"):
        place(Settings.model_validate(settings), [models / "tiny" / "1"])
    found = place(Settings.model_validate(settings | {"allow_fallback": True}), [models / "tiny" / "1"])
    assert found == Placement("cpu", (), ("cuda: the trial ended with status 1 and said nothing",))


@pytest.mark.slow
def test_each_engine_process_sees_its_own_device_only_and_workers_none(models, tmp_path):
    """As if two devices had been found; what runs on them here is the CPU's provider."""
    program = (sys.executable, "-c", ON_TWO_DEVICES)
    with RunningService(models, tmp_path, program=program) as service:
        fronts, seen = [[_environment(process) for process in part] for part in (service.fronts(), service.engines())]
    assert not any("CUDA_DEVICE_ORDER" in variables for variables in fronts)
    assert [variables["CUDA_VISIBLE_DEVICES"] for variables in seen] == ["1", "MIG-3f"]
    assert {variables["CUDA_DEVICE_ORDER"] for variables in seen} == {"PCI_BUS_ID"}
    assert {variables["NVIDIA_TF32_OVERRIDE"] for variables in seen} == {"0"}


def _environment(process: int) -> dict[str, str]:
    variables = Path(f"/proc/{process}/environ").read_bytes().decode().split("\0")
    return dict(variable.partition("=")[::2] for variable in variables if variable)
