import json
import multiprocessing

import pytest

from service.errors import SettingsError
from service.state import DesiredState, ServedModel, StateStore, plan
from tests import tiny


def state(gate="accept95", revision=0):
    return DesiredState(
        revision=revision, configured_gate="accept95", models={"tiny": ServedModel(versions=(1,), default=1, gate=gate)}
    )


def with_gate(gate):
    return lambda before: before.with_model("tiny", before.models["tiny"].model_copy(update={"gate": gate}))


def test_what_is_written_is_read_and_revisions_rise(tmp_path):
    store = StateStore(tmp_path)
    assert store.read() is None
    store.write(state())
    before, after = store.change(with_gate("accept99"))
    assert (before.revision, after.revision) == (0, 1)
    assert StateStore(tmp_path).read() == after
    assert after.models["tiny"].gate == "accept99"


def test_a_change_shows_in_the_stamp(tmp_path):
    store = StateStore(tmp_path)
    assert store.stamp() == (0, 0)
    store.write(state())
    first = store.stamp()
    store.change(with_gate("accept99"))
    assert store.stamp() != first


def test_a_state_cut_short_at_any_byte_falls_back_to_the_one_before(tmp_path):
    store = StateStore(tmp_path)
    store.write(state())
    store.change(with_gate("accept90"))
    store.change(with_gate("accept99"))
    whole = (tmp_path / "state.json").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "state.json").write_bytes(whole[:length])
        survivor = store.read()
        assert survivor is not None
        assert survivor.models["tiny"].gate == "accept90"
    (tmp_path / "state.json").write_bytes(whole)
    assert store.read().models["tiny"].gate == "accept99"


def test_a_changed_byte_is_noticed(tmp_path):
    store = StateStore(tmp_path)
    store.write(state())
    text = (tmp_path / "state.json").read_text()
    (tmp_path / "state.json").write_text(text.replace("accept95", "accept99"))
    assert store.read() is None


def _add_revisions(directory, count):
    for _ in range(count):
        StateStore(directory).change(lambda before: before)


def test_processes_that_change_it_at_once_lose_no_change(tmp_path):
    StateStore(tmp_path).write(state())
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add_revisions, args=(tmp_path, 25)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert StateStore(tmp_path).read().revision == 75


def test_the_audit_log_says_when_who_what(tmp_path):
    store = StateStore(tmp_path)
    store.audit("alice", "gate", model="tiny", before="accept95", after="accept99")
    store.audit("bob", "gate", model="tiny", before="accept99", after="-3.5")
    entries = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [entry["key"] for entry in entries] == ["alice", "bob"]
    assert entries[0].items() >= {"action": "gate", "before": "accept95", "after": "accept99"}.items()
    assert entries[0]["time"].endswith("+00:00")


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
