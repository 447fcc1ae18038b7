"""What `make bench` measures on: the CPU by its cores, a host with GPUs by its devices."""

import os

import pytest

from bench import raw_engine
from bench.machine import found, machine_of
from portcullis.processes.placement import Placement


def test_on_a_host_with_gpus_there_is_one_process_a_device_and_batches_go_to_64():
    machine = machine_of(Placement("cuda", ("0", "MIG-3f")), num_cores=16)
    assert machine.num_processes == 2
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in machine.environments] == ["0", "MIG-3f"]
    assert max(machine.batches) == 64
    assert max(machine.connections) > 2 * 64, "two devices with full batches in flight"


def test_on_a_cpu_there_is_one_process_a_core():
    machine = machine_of(Placement(), num_cores=3)
    assert (machine.provider, machine.num_processes, machine.cards) == ("cpu", 3, ())


@pytest.mark.slow
def test_every_process_of_the_raw_engine_has_an_environment_of_its_own():
    environments = [{"CUDA_VISIBLE_DEVICES": name} for name in ("0", "1")]
    with raw_engine.engines(environments) as pool:
        seen = pool.map(_device, range(2), chunksize=1)
    assert sorted(seen) == ["0", "1"]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def _device(_: int) -> str:
    """Once the other process has come so far too: neither answers twice."""
    raw_engine._barrier.wait(60)
    return os.environ["CUDA_VISIBLE_DEVICES"]


@pytest.mark.slow
def test_the_raw_engine_is_measured_where_the_service_would_run(models):
    bundle = models / "tiny" / "1"
    machine = found([bundle])
    assert raw_engine.images_per_second(bundle, 4, machine.environments, seconds=0.1) > 0
    assert raw_engine.seconds_of_one(bundle, machine.environments[0], seconds=0.1) > 0
