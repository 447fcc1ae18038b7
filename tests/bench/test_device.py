"""The simulated device's benchmark in short: it runs, counts what it says, and keeps it. No figure is judged here."""

import json
import shutil
import sys

import pytest

from bench import device
from bench.device import Device

needs_h2load = pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load (nghttp2-client) is missing")


def test_the_capacity_is_that_of_full_batches():
    assert Device(10, 0.8, 15).capacity == pytest.approx(64 / 0.0612)
    assert Device(2, 0.2, 15).provider == "simulated:fixed=2:image=0.2:replan=15:answers=kept"


@needs_h2load
@pytest.mark.slow
def test_the_whole_service_is_measured_on_it_and_the_figures_are_kept(tmp_path, monkeypatch, capsys):
    command = ["bench.device", "--fixed-ms", "20", "--per-image-ms", "4", "--loads", "0.5", "--seconds", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--only", "loads", "--out", str(tmp_path / "device.json")])
    device.main()
    kept = json.loads((tmp_path / "device.json").read_text())["loads"]
    [row] = kept["rows"]
    assert kept["capacity"] == pytest.approx(64 / 0.276)
    assert row["failed"] == 0
    assert row["served_per_second"] > 0
    assert 1 <= row["mean_batch"] <= 64
    assert 0 < row["p50_ms"] <= row["p99_ms"]
    assert f"{row['served_per_second']:.0f}" in capsys.readouterr().out
