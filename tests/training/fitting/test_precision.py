"""Precision: what is settled is not measured, what is measured is the faster, and a resumed run keeps it."""

import logging

import pytest
import torch
from torch import nn

from portcullis_training.config import RunConfig
from portcullis_training.fitting import checkpoint, precision
from portcullis_training.fitting.distributed import Process
from portcullis_training.fitting.fit import fit
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import create_run

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
ALONE = Process(0, 1, CPU)


def steps(**seconds: list[float]) -> precision.Step:
    """A step that takes as long as the lists say, one after the other."""
    rest = {name: list(values) for name, values in seconds.items()}
    return lambda name: rest[name].pop(0)


def test_what_is_asked_for_is_not_measured(monkeypatch):
    assert precision.given(RunConfig(precision="bfloat16"), CPU) == "bfloat16"
    assert precision.given(RunConfig(precision="float32"), CUDA) == "float32"
    assert precision.given(RunConfig(precision="auto"), CPU) is None
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert precision.given(RunConfig(precision="auto"), CUDA) == "bfloat16"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert precision.given(RunConfig(precision="auto"), CUDA) == "float16"


@pytest.mark.parametrize(
    ("float32", "bfloat16", "chosen"),
    [
        ([9, 2, 2, 2, 2], [9, 1, 1, 1, 1], "bfloat16"),
        ([9, 1, 1, 1, 1], [9, 2, 2, 2, 2], "float32"),
        ([9, 1.05, 1.05, 1.05, 1.05], [9, 1, 1, 1, 1], "float32"),  # a gain too small for the rounding
        ([9, 2, 2, 2, 2], [9, 5, 1, 5, 5], "bfloat16"),  # the quickest counts: nothing makes a step faster than it is
        ([0, 2, 2, 2, 2], [9, 1, 1, 1, 1], "bfloat16"),  # the first step warms up and does not count
    ],
)
def test_the_faster_is_taken_and_the_run_says_so(caplog, float32, bfloat16, chosen):
    with caplog.at_level(logging.INFO, "portcullis_training"):
        assert precision.faster(steps(float32=float32, bfloat16=bfloat16), ALONE) == chosen
    assert f"precision: {chosen}; processor time of a step: float32 {min(float32[1:]):.3f} s" in caplog.text


def test_a_large_network_is_timed_once():
    assert precision.faster(steps(float32=[70, 60], bfloat16=[40, 30]), ALONE) == "bfloat16"


class WithNeighbour(Process):
    """One of two processes; the other's steps took as long as it is told."""

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """What both took."""
        return values + self.neighbours_seconds.pop(0)


def test_processes_choose_by_what_all_of_them_took():
    process = WithNeighbour(0, 2, CPU)
    object.__setattr__(process, "neighbours_seconds", [1, 9] * 4)  # float32, bfloat16 in turn
    assert precision.faster(steps(float32=[2] * 5, bfloat16=[1] * 5), process) == "float32"
    assert precision.faster(steps(float32=[2] * 5, bfloat16=[1] * 5), ALONE) == "bfloat16"


def test_timing_leaves_weights_statistics_and_generators_alone():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.AdaptiveMaxPool2d(1), nn.Flatten())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    generator = torch.get_rng_state()
    step = precision.timed_step(network, (8, 3, 8, 8), num_classes=4)
    assert step("float32") >= 0 and step("bfloat16") >= 0
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_run_in_bfloat16_learns_and_keeps_its_weights_in_float32(monkeypatch, tmp_path):
    config = RECIPES["digits"].model_copy(update={"precision": "bfloat16", "epochs": 4, "device": "cpu"})
    history = fit(run := create_run(tmp_path, config), show_progress=False)
    saved = checkpoint.load(run.checkpoint_path)
    assert saved.precision == "bfloat16" and history[-1]["validation_accuracy"] > 0.9
    assert {value.dtype for value in saved.classifier.values() if value.is_floating_point()} == {torch.float32}
    exact = fit(create_run(tmp_path / "exact", config.model_copy(update={"precision": "float32"})), show_progress=False)
    assert exact[0]["loss"] != history[0]["loss"]  # so it was bfloat16 indeed
    assert exact[0]["loss"] == pytest.approx(history[0]["loss"], rel=0.05)


def test_a_resumed_run_goes_on_in_the_precision_it_was_started_in(monkeypatch, tmp_path):
    config = RECIPES["digits"].model_copy(update={"precision": "auto", "epochs": 2, "device": "cpu"})
    run = create_run(tmp_path, config)
    monkeypatch.setattr(precision, "faster", lambda step, process: "bfloat16")
    fit(run, show_progress=False)
    monkeypatch.setattr(precision, "faster", lambda step, process: pytest.fail("measured again"))
    longer = create_run(tmp_path / "longer", config.model_copy(update={"epochs": 3}))
    longer.checkpoint_path.write_bytes(run.checkpoint_path.read_bytes())
    fit(longer, resume=True, show_progress=False)
    assert checkpoint.load(longer.checkpoint_path).precision == "bfloat16"
