"""Several processes: two give the figures of one, each seeing its half of every batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from portcullis_training import data
from portcullis_training.config import RunConfig, make_config
from portcullis_training.errors import ConfigError
from portcullis_training.fitting import checkpoint
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.fitting.distributed import Process, choose_device
from portcullis_training.fitting.fit import Fitting, fit
from portcullis_training.methods import duq
from portcullis_training.recipes import RECIPES
from portcullis_training.runs.directory import Run, create_run, open_run

CONFIG = RECIPES["digits"].model_copy(
    update={"epochs": 4, "batch_size": 64, "weight_averaging": 0.9, "device": "cpu", "mixing": "none"}
)


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "portcullis_training",
    ]
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


def assert_alike(together, alone) -> None:
    """Batch norm sees half of each batch on CPUs, so the figures agree closely, not to the bit."""
    assert [row["learning_rate"] for row in together] == [row["learning_rate"] for row in alone]
    assert [round(row["images_per_second"] * row["seconds"]) for row in together] == [15 * 64] * 4  # each image once
    assert [row["loss"] for row in together] == pytest.approx([row["loss"] for row in alone], rel=0.1, abs=0.05)
    assert together[-1]["accuracy"] == pytest.approx(alone[-1]["accuracy"], abs=0.02)
    assert together[-1]["validation_accuracy"] == pytest.approx(alone[-1]["validation_accuracy"], abs=0.02)


@pytest.mark.slow
def test_two_processes_give_the_figures_of_one(tmp_path, two_processes):
    alone = fit(create_run(tmp_path, CONFIG), show_progress=False)
    assert_alike(json.loads(two_processes.history_path.read_text()), alone)


@pytest.mark.slow
def test_two_processes_give_the_figures_of_one_with_the_fractional_regulariser(tmp_path):
    """The first step's loss, from the same weights: before batch norm has made any difference but its own."""
    config = CONFIG.model_copy(update={"mixing": "fractional", "epochs": 1, "weight_averaging": None})
    alone = fit(create_run(tmp_path / "one", config), show_progress=False)
    run = create_run(tmp_path / "two", config)
    assert torchrun("fit", "--resume", str(run.directory)).returncode == 0
    together = json.loads(run.history_path.read_text())
    assert round(together[0]["images_per_second"] * together[0]["seconds"]) == 15 * 64
    assert together[0]["loss"] == pytest.approx(alone[0]["loss"], rel=0.1)


def trained_by_two(directory: Path, method: str) -> Run:
    fields = {"method": method, "backbone": "small:4-8-16", "epochs": 1, "weight_averaging": None}
    run = create_run(directory, CONFIG.model_copy(update=fields))
    result = torchrun("fit", "--resume", str(run.directory))
    assert result.returncode == 0, result.stderr
    return run


@pytest.mark.parametrize(("method", "is_synchronised"), [("softmax", True), ("duq", False)])
def test_batch_norm_is_synchronised_on_gpus_but_where_gradients_of_gradients_are_taken(
    method, is_synchronised, tmp_path, monkeypatch
):
    monkeypatch.setattr(Classifier, "to", lambda self, *arguments, **options: self)  # there is no GPU here
    monkeypatch.setattr(Process, "parallel", lambda self, classifier: classifier)
    run = create_run(tmp_path, CONFIG.model_copy(update={"method": method, "backbone": "small:4-8-16"}))
    process = Process(0, 2, torch.device("cuda"))
    monkeypatch.setattr("portcullis_training.fitting.fit.Tally", lambda device: None)
    fitting = Fitting(run, process, data.load(CONFIG.data, CONFIG), kept_precision="float32")
    assert any(isinstance(module, nn.SyncBatchNorm) for module in fitting.classifier.modules()) == is_synchronised


@pytest.mark.slow
def test_the_centroids_of_duq_follow_the_images_of_both_processes(tmp_path):
    """Gradients of gradients work there too."""
    counts = checkpoint.load_classifier(trained_by_two(tmp_path, "duq")).head.counts
    kept = duq.MOMENTUM**15  # after 15 steps of 64 images
    assert counts.sum().item() == pytest.approx(10 * duq.FIRST_COUNT * kept + 64 * (1 - kept), rel=1e-4)


@pytest.mark.slow
def test_the_precision_of_sngp_is_that_of_the_images_of_both_processes(tmp_path):
    run = trained_by_two(tmp_path, "sngp")
    classifier = checkpoint.load_classifier(run)
    train = data.load(run.config.data, run.config).train
    with torch.inference_mode():
        features = classifier.features(data.to_float(torch.from_numpy(data.as_array(train))))
        phi = classifier.head.random_features(features).double()
        expected = torch.linalg.inv(torch.eye(phi.shape[1], dtype=torch.float64) + phi.T @ phi)
    torch.testing.assert_close(classifier.head.covariance.double(), expected, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_the_checkpoint_of_two_processes_has_the_generators_of_both(two_processes):
    saved = checkpoint.load(two_processes.checkpoint_path)
    assert saved.epoch == 4 and len(saved.generators) == 2
    assert not torch.equal(saved.generators[0], saved.generators[1])


def test_the_shares_of_all_processes_make_up_the_batch():
    processes = [Process(rank, 4, torch.device("cpu")) for rank in range(4)]
    positions = [index for process in processes for index in process.share(64).positions]
    assert positions == list(range(64))


def test_a_batch_that_cannot_be_shared_equally_is_refused():
    cpu = torch.device("cpu")
    with pytest.raises(ConfigError, match="batch_size 64 cannot be shared equally by 3"):
        Process(0, 3, cpu).batch_size(RunConfig(), 1000)
    halves = RunConfig(batch_size=6, mixing="fractional")
    with pytest.raises(ConfigError, match="of both halves by 2 processes; expected a multiple of 4"):
        Process(0, 2, cpu).batch_size(halves, 1000)
    assert Process(0, 1, cpu).batch_size(halves, 1000) == 6 and Process(0, 1, cpu).batch_size(halves, 5) == 5
    assert Process(0, 2, cpu).batch_size(RunConfig(mixing="fractional"), 30) == 28


def test_a_gpu_is_taken_where_there_is_one_and_missed_where_it_was_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="cuda:1 was asked for, but torch finds no GPU"):
        choose_device("cuda:1")
    with pytest.raises(ConfigError, match="no Mac with a GPU"):
        choose_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == choose_device("mps") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    assert choose_device("auto", 1) == choose_device("cuda:1") == torch.device("cuda", 1)
    assert choose_device("cuda") == torch.device("cuda", 0) and choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="expected cuda:0 to cuda:1, got cuda:2"):
        choose_device("cuda:2")


def test_a_device_that_does_not_exist_is_refused_by_the_config():
    with pytest.raises(ConfigError, match="device: String should match pattern"):
        make_config({"device": "cuda:first"})


def test_the_same_bits_are_asked_of_a_gpu_where_the_config_says_so(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Fitting, "run_epoch", lambda self, *_: seen.append(is_deterministic()) or _end(self))
    for wanted in (True, False):
        config = CONFIG.model_copy(update={"name": f"run-{wanted}", "deterministic": wanted})
        fit(create_run(tmp_path, config), show_progress=False)
    assert seen == [True, False] and not is_deterministic()


def is_deterministic() -> bool:
    return torch.are_deterministic_algorithms_enabled() and "CUBLAS_WORKSPACE_CONFIG" in os.environ


def _end(fitting: Fitting) -> None:
    fitting.epoch = fitting.config.epochs
