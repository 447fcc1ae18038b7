import os

import pytest

from portcullis.bundle import devices


@pytest.mark.parametrize(
    ("quota", "cores"), [("200000 100000", 2), ("50000 100000", 1), ("max 100000", None), ("", None)]
)
def test_a_containers_quota_limits_the_cores(tmp_path, quota, cores):
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    allowed = len(os.sched_getaffinity(0))
    assert devices.num_cores(file) == (allowed if cores is None else min(cores, allowed))
    assert devices.num_cores(tmp_path / "absent") == allowed


def test_a_system_that_does_not_say_which_cores_we_may_use_lets_us_use_all(monkeypatch, tmp_path):
    """As Apple's and Windows, on which models are trained."""
    monkeypatch.delattr(os, "sched_getaffinity")
    for found, cores in ((6, 6), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda found=found: found)
        assert devices.num_cores(tmp_path / "absent") == cores


def test_without_a_driver_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(devices, "DRIVER", "libcuda-that-is-nowhere.so")
    assert devices.driver() is None
