"""Several processes: two give the figures of one, each seeing its half of every batch."""

import json
import os
import subprocess
import sys

import pytest
import torch

from training import checkpoint
from training.distributed import Process, choose_device, training_process
from training.errors import ConfigError
from training.fit import fit
from training.recipes import RECIPES, RunConfig
from training.runs import Run, create_run, open_run

CONFIG = RECIPES["digits"].model_copy(
    update={"epochs": 4, "batch_size": 64, "weight_averaging": 0.9, "device": "cpu", "fractional_regulariser": False}
)


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "training"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    options = {"capture_output": True, "text": True, "timeout": 280}
    return subprocess.run([*command, *arguments], check=False, env=environment, **options)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Run:
    run = create_run(tmp_path_factory.mktemp("two"), CONFIG)
    result = torchrun("fit", "--resume", str(run.directory))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("trained 4 epochs") == 1  # one process reports
    return open_run(run.directory)


@pytest.mark.slow
def test_two_processes_give_the_figures_of_one(tmp_path, two_processes):
    alone = fit(create_run(tmp_path, CONFIG), show_progress=False)
    together = json.loads(two_processes.history_path.read_text())
    assert [row["learning_rate"] for row in together] == [row["learning_rate"] for row in alone]
    assert [round(row["images_per_second"] * row["seconds"]) for row in together] == [15 * 64] * 4  # each image once
    # Batch norm sees half of each batch on CPUs, so the figures agree closely, not to the bit.
    assert [row["loss"] for row in together] == pytest.approx([row["loss"] for row in alone], rel=0.1, abs=0.05)
    assert together[-1]["accuracy"] == pytest.approx(alone[-1]["accuracy"], abs=0.02)
    assert together[-1]["validation_accuracy"] == pytest.approx(alone[-1]["validation_accuracy"], abs=0.02)


@pytest.mark.slow
def test_the_checkpoint_of_two_processes_has_the_generators_of_both(two_processes):
    saved = checkpoint.load(two_processes.checkpoint_path)
    assert saved.epoch == 4 and len(saved.generators) == 2
    assert not torch.equal(saved.generators[0], saved.generators[1])


def test_the_shares_of_all_processes_make_up_the_batch():
    processes = [Process(rank, 4, torch.device("cpu")) for rank in range(4)]
    positions = [index for process in processes for index in range(*process.share(64))]
    assert positions == list(range(64))


def test_a_batch_that_cannot_be_shared_equally_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="batch_size 64 cannot be shared equally by 3"), training_process(RunConfig()):
        pass


def test_a_gpu_is_taken_where_there_is_one_and_missed_where_it_was_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="finds no GPU"):
        choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    assert choose_device("auto", 1) == torch.device("cuda", 1) and choose_device("cpu") == torch.device("cpu")
