"""A file is replaced whole or not at all, and what is said to outlive a loss of power is synced with its name."""

import os
from pathlib import Path

import pytest

from portcullis.store.durable import replace_durably


@pytest.fixture
def synced(tmp_path, monkeypatch):
    """What was synced, in order, each with what it held then."""
    seen, sync = [], os.fsync

    def note(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115
        seen.append(sorted(entry.name for entry in path.iterdir()) if path.is_dir() else path.read_text())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return seen


def test_first_the_text_is_synced_and_then_the_directory_that_has_its_name(tmp_path, synced):
    (tmp_path / "file").write_text("old")
    replace_durably(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert synced == ["new", ["file"]]


def test_what_need_not_outlive_a_loss_of_power_is_not_waited_for(tmp_path, synced):
    replace_durably(tmp_path / "file", "new", sync=False)
    assert ((tmp_path / "file").read_text(), synced) == ("new", [])


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_durably(tmp_path / "file", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]
