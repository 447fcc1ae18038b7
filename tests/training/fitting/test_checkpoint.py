"""Checkpoints: whole or not at all, and nothing but data is ever loaded from one."""

import errno
import os
import pickle
import resource
import signal

import pytest
import torch

from portcullis_training.errors import CheckpointError
from portcullis_training.fitting import checkpoint
from portcullis_training.fitting.checkpoint import Checkpoint
from portcullis_training.runs import atomic


def sample(num_weights: int = 1000, epoch: int = 1) -> Checkpoint:
    return Checkpoint(
        epoch=epoch, step=0, classifier={"weight": torch.arange(num_weights, dtype=torch.float32)}, averaged=None,
        optimizer={"state": {}, "param_groups": []}, scaler={}, augmentation_generator=torch.Generator().get_state(),
        generators=[torch.get_rng_state()], sums=torch.zeros(5), epoch_seconds=1.0, history=[{"epoch": 1, "loss": 0.5}],
        class_names=["a", "b"], mean=[0.5] * 3, std=[0.2] * 3, fingerprints={"train": "0"}, image_spec={"height": 8},
    )  # fmt: skip


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, sample())
    loaded = checkpoint.load(path)
    assert torch.equal(loaded.classifier["weight"], sample().classifier["weight"])
    assert loaded.history == sample().history and loaded.fingerprints == {"train": "0"}
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_checkpoint_from_before_the_precision_was_kept_is_read(tmp_path):
    content = checkpoint.as_plain_dict(sample())
    del content["precision"]
    torch.save(content, tmp_path / "checkpoint.pt")
    loaded = checkpoint.load(tmp_path / "checkpoint.pt")
    assert loaded.precision is None and loaded.epoch == 1


def test_a_disk_that_fills_up_keeps_the_last_good_checkpoint_and_leaves_nothing_half_written(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, sample(epoch=1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))  # every write beyond fails, as on a full disk
    try:
        with pytest.raises(CheckpointError, match=r"could not write checkpoint .*File too large; the last good one"):
            checkpoint.save(path, sample(num_weights=1_000_000, epoch=2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert checkpoint.load(path).epoch == 1
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_disk_found_full_at_the_last_moment_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        checkpoint.save(path, sample())
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_cannot_run_code(tmp_path):
    class Malicious:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    path = tmp_path / "checkpoint.pt"
    path.write_bytes(pickle.dumps(Malicious(), protocol=2))
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        checkpoint.load(path)
    torch.save({"format": 1, "payload": Malicious()}, path)
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        checkpoint.load(path)
    assert not (tmp_path / "ran").exists()


def test_files_that_are_no_checkpoint_are_refused(tmp_path):
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(CheckpointError, match="no checkpoint"):
        checkpoint.load(path)
    checkpoint.save(path, sample())
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        checkpoint.load(path)
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match="not a checkpoint of this version"):
        checkpoint.load(path)
