import json
import multiprocessing
import os
from pathlib import Path

import pytest

from portcullis.errors import SettingsError, StateNotWritten
from portcullis.lifecycle.first_state import plan
from portcullis.store.state import (
    DesiredState,
    ServedModel,
    Shadow,
    StateStore,
)
from tests import tiny


def state(gate="accept95", revision=0):
    return DesiredState(
        revision=revision, configured_gate="accept95", models={"tiny": ServedModel(default=1, gate=gate)}
    )


def with_gate(gate):
    return lambda before: before.with_model("tiny", before.models["tiny"].model_copy(update={"gate": gate}))


def test_what_is_written_is_read_and_revisions_rise(tmp_path):
    store = StateStore(tmp_path)
    assert store.read() is None
    store.write(state())
    before, after = store.change(with_gate("accept99"), "alice", "gate")
    assert (before.revision, after.revision) == (0, 1)
    assert StateStore(tmp_path).read() == after
    assert after.models["tiny"].gate == "accept99"


def test_a_state_that_is_the_same_is_parsed_once_and_one_that_cannot_be_read_is_read_again(tmp_path, monkeypatch):
    """As a worker does many times a second."""
    StateStore(tmp_path).write(state())
    store = StateStore(tmp_path)
    first = store.read()
    assert store.read() is first
    StateStore(tmp_path).change(with_gate("accept99"), "alice", "gate")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda file: (_ for _ in ()).throw(OSError(24, "Too many open files")))
        assert store.read() is None
    assert (store.read().revision, store.read().models["tiny"].gate) == (1, "accept99")


def test_a_change_of_nothing_is_not_written(tmp_path):
    store = StateStore(tmp_path)
    store.write(state())
    inode = (tmp_path / "state.json").stat().st_ino
    assert store.change(with_gate("accept95"), "alice", "gate")[1].revision == 0
    assert (tmp_path / "state.json").stat().st_ino == inode
    assert not (tmp_path / "audit.jsonl").exists()


@pytest.mark.parametrize("file", ["state.json", "state.twin.json"])
def test_a_state_cut_short_at_any_byte_costs_nothing(tmp_path, file):
    store = StateStore(tmp_path)
    store.write(state())
    store.change(with_gate("accept90"), "alice", "gate")
    store.change(with_gate("accept99"), "alice", "gate")
    whole = (tmp_path / file).read_bytes()
    for length in range(len(whole)):
        (tmp_path / file).write_bytes(whole[:length])
        survivor = store.read()
        assert survivor is not None
        assert survivor.models["tiny"].gate == "accept99"


def test_a_kill_between_the_two_files_keeps_the_state_before_or_after(tmp_path):
    store = StateStore(tmp_path)
    store.write(state())
    before = (tmp_path / "state.json").read_bytes()
    store.change(with_gate("accept99"), "alice", "gate")
    (tmp_path / "state.json").write_bytes(before)  # as if only the twin had been written
    assert store.read().models["tiny"].gate == "accept95"
    (tmp_path / "state.json").unlink()
    assert store.read().models["tiny"].gate == "accept99"


def test_a_changed_byte_is_noticed(tmp_path):
    store = StateStore(tmp_path)
    store.write(state())
    text = (tmp_path / "state.json").read_text()
    for file in ("state.json", "state.twin.json"):
        (tmp_path / file).write_text(text.replace("accept95", "accept99"))
    assert store.read() is None


def _flip(before):
    return with_gate("accept90" if before.models["tiny"].gate == "accept95" else "accept95")(before)


def _add_revisions(directory, count):
    for _ in range(count):
        StateStore(directory).change(_flip, "alice", "gate")


def test_processes_that_change_it_at_once_lose_no_change(tmp_path):
    StateStore(tmp_path).write(state())
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add_revisions, args=(tmp_path, 10)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert StateStore(tmp_path).read().revision == 30
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 30


def test_the_audit_log_says_when_who_what(tmp_path):
    store = StateStore(tmp_path)
    store.write(state())
    store.change(with_gate("accept99"), "alice", "gate", model="tiny", before="accept95", after="accept99")
    store.change(with_gate("-3.5"), "bob", "gate", model="tiny", before="accept99", after="-3.5")
    entries = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [entry["key"] for entry in entries] == ["alice", "bob"]
    assert entries[0].items() >= {"action": "gate", "before": "accept95", "after": "accept99"}.items()
    assert entries[0]["time"].endswith("+00:00")


def test_a_change_that_cannot_be_written_is_not_in_the_audit_log(tmp_path, monkeypatch):
    store = StateStore(tmp_path)
    store.write(state())
    store.change(with_gate("accept90"), "alice", "gate")
    lines, before = (tmp_path / "audit.jsonl").read_text(), store.read()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("portcullis.store.state.os.fsync", full)
    with pytest.raises(StateNotWritten, match="No space left"):
        store.change(with_gate("accept99"), "alice", "gate")
    monkeypatch.setattr("portcullis.store.state.replace_durably", full)
    monkeypatch.setattr("portcullis.store.state.os.fsync", lambda _: None)
    with pytest.raises(StateNotWritten, match="No space left"):
        store.change(with_gate("accept99"), "alice", "gate")
    assert (tmp_path / "audit.jsonl").read_text() == lines
    assert store.read() == before
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_what_was_answered_outlives_a_loss_of_power(tmp_path, monkeypatch):
    """A name lives in its directory, which is synced after the name: both files', and that of a new audit log."""
    synced = []
    sync = os.fsync

    def note(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115
        if path.is_dir():
            present = (file for file in path.iterdir() if not file.name.startswith("."))
            synced.append({file.name: file.read_bytes() for file in present})
        sync(descriptor)

    store = StateStore(tmp_path)
    store.write(state())
    monkeypatch.setattr(os, "fsync", note)
    store.change(with_gate("accept99"), "alice", "gate")
    assert b"accept99" in synced[-1]["state.json"]
    assert b"accept99" in synced[-2]["state.twin.json"]
    assert b"alice" in synced[0]["audit.jsonl"] and b"accept99" not in synced[0]["state.twin.json"]


def test_the_newest_version_of_every_name_is_planned(tmp_path):
    for version in (1, 2, 10):
        tiny.write(tmp_path, version=version)
    tiny.write(tmp_path, name="other")
    planned = plan(tmp_path, (), "accept95", None)
    assert {name: model.default for name, model in planned.models.items()} == {"tiny": 10, "other": 1}
    pinned = plan(tmp_path, ("tiny@2",), "accept95", None)
    assert pinned.models.keys() == {"tiny"}
    assert (pinned.models["tiny"].default, pinned.models["tiny"].is_pinned) == (2, True)


def test_an_admins_gate_survives_a_restart_until_the_setting_changes(tmp_path):
    tiny.write(tmp_path)
    first = plan(tmp_path, (), "accept95", None)
    changed = with_gate("accept99")(first)
    assert plan(tmp_path, (), "accept95", changed).models["tiny"].gate == "accept99"
    assert plan(tmp_path, (), "accept90", changed).models["tiny"].gate == "accept90"


@pytest.mark.parametrize("serve", [("nobody",), ("tiny@7",), ("tiny@x",)])
def test_a_bundle_that_is_not_there_is_named_with_those_that_are(tmp_path, serve):
    tiny.write(tmp_path)
    with pytest.raises(SettingsError, match=f"no bundle {serve[0]}.*there are: tiny@1"):
        plan(tmp_path, serve, "accept95", None)


def test_an_empty_models_directory_says_how_to_fill_it(tmp_path):
    with pytest.raises(SettingsError, match="portcullis-train run"):
        plan(tmp_path, (), "accept95", None)


def test_a_restart_comes_back_to_the_same_versions_whatever_has_appeared(tmp_path):
    for version in (1, 2, 3):
        tiny.write(tmp_path, version=version)
    tiny.write(tmp_path, name="other")
    first = plan(tmp_path, (), "accept95", None)
    shadow = Shadow(version=2, share=0.5, session=7)
    served = ServedModel(default=1, loaded=(3,), is_pinned=True, gate="accept90", shadow=shadow)
    changed = first.with_model("tiny", served).without_model("other")
    tiny.write(tmp_path, version=4)
    tiny.write(tmp_path, name="newcomer")
    again = plan(tmp_path, (), "accept95", changed)
    assert again.models == {"tiny": served}
    assert again.unloaded == ("other",)
    assert served.versions == (1, 2, 3)


def test_a_changed_serve_setting_wins_over_older_admin_calls(tmp_path):
    for version in (1, 2):
        tiny.write(tmp_path, version=version)
    pinned = plan(tmp_path, ("tiny@1",), "accept95", None)
    assert plan(tmp_path, ("tiny@1",), "accept95", pinned.without_model("tiny")).models == {}
    again = plan(tmp_path, ("tiny",), "accept95", pinned.without_model("tiny"))
    assert (again.models["tiny"].default, again.models["tiny"].is_pinned, again.unloaded) == (2, False, ())


def test_versions_that_are_gone_from_the_disk_are_not_wanted_back(tmp_path):
    tiny.write(tmp_path, version=2)
    served = ServedModel(default=1, loaded=(3,), gate="accept95", shadow=Shadow(version=9, share=1))
    before = plan(tmp_path, (), "accept95", None).with_model("tiny", served)
    assert plan(tmp_path, (), "accept95", before).models["tiny"] == ServedModel(default=2, gate="accept95")
    assert "gone" not in plan(tmp_path, (), "accept95", before.with_model("gone", served)).models
