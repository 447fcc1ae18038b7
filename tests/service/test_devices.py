import os

import pytest

from service import devices
from service.settings import Settings
from service.supervisor import worker_devices


@pytest.mark.parametrize(
    ("quota", "cores"), [("200000 100000", 2), ("50000 100000", 1), ("max 100000", None), ("", None)]
)
def test_a_containers_quota_limits_the_cores(tmp_path, quota, cores):
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    allowed = len(os.sched_getaffinity(0))
    assert devices.num_cores(file) == (allowed if cores is None else min(cores, allowed))
    assert devices.num_cores(tmp_path / "absent") == allowed


@pytest.mark.parametrize(
    ("options", "num_gpus", "num_cores", "expected"),
    [
        ({}, 0, 4, [None] * 4),
        ({}, 2, 16, [0, 1]),
        ({"providers": "cpu"}, 2, 3, [None] * 3),
        ({"device_ids": "1,3"}, 4, 16, [1, 3]),
        ({"workers": 3}, 2, 16, [0, 1, 0]),
        ({"workers": 3}, 0, 16, [None] * 3),
    ],
)
def test_one_worker_a_core_on_cpu_and_one_a_device_on_gpu(options, num_gpus, num_cores, expected):
    assert worker_devices(Settings.model_validate(options), num_gpus, num_cores) == expected
