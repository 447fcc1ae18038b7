"""The desired state on both engines, and the state to start with."""

import json
import multiprocessing

import pytest

from portcullis.bundle.sources.source import DirectorySource
from portcullis.errors import (
    Conflict,
    DatabaseAway,
    DatabaseDamaged,
    SettingsError,
    StateNotWritten,
    UnknownOperatingPoint,
)
from portcullis.lifecycle.first_state import begin, plan
from portcullis.processes.stores import stores_of
from portcullis.settings import Settings
from portcullis.store.postgresql import Postgres
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


@pytest.fixture
def store(database):
    store = StateStore(database)
    store.write(state())
    return store


def test_what_is_written_is_read_and_revisions_rise(database):
    store = StateStore(database)
    assert store.read() is None
    store.write(state())
    before, after = store.change(with_gate("accept99"), "alice", "gate")
    assert (before.revision, after.revision) == (0, 1)
    assert store.read() == StateStore(database).read() == after
    assert after.models["tiny"].gate == "accept99"


def test_a_state_that_is_the_same_is_read_once(local):
    """As a worker does many times a second."""
    store = StateStore(local)
    store.write(state())
    first = store.read()
    assert store.read() is first
    StateStore(local).change(with_gate("accept99"), "alice", "gate")
    assert (store.read().revision, store.read().models["tiny"].gate) == (1, "accept99")


def test_who_can_go_on_without_the_state_is_given_none(local):
    store = StateStore(local)
    store.write(state())
    local.set_aside()
    assert store.at_hand() is None
    with pytest.raises(DatabaseAway):
        store.read()


def test_a_state_that_nobody_understands_is_damage(database, store):
    with database.writing() as session:
        session.run("UPDATE state SET body = :body", body='{"revision": "x"}')
    with pytest.raises(DatabaseDamaged):
        StateStore(database).read()


def test_a_change_of_nothing_is_not_written(store):
    assert store.change(with_gate("accept95"), "alice", "gate")[1].revision == 0
    assert store.audit() == []


def test_of_several_first_states_one_is(database):
    store = StateStore(database)
    assert store.begin_with(state("accept90")).models["tiny"].gate == "accept90"
    assert store.begin_with(state("accept99")).models["tiny"].gate == "accept90"


def _flip(before):
    return with_gate("accept90" if before.models["tiny"].gate == "accept95" else "accept95")(before)


def _add_revisions(settings, count):
    store = StateStore(stores_of(Settings(**settings)).shared)
    for _ in range(count):
        store.change(_flip, "alice", "gate")


def test_processes_that_change_it_at_once_lose_no_change(database, store, tmp_path, request):
    settings = {"runtime_directory": tmp_path}
    if isinstance(database, Postgres):
        settings["database"] = request.getfixturevalue("fleet_url")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add_revisions, args=(settings, 10)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert store.read().revision == 30
    assert [line["revision"] for line in store.audit()] == list(range(1, 31))


def test_the_audit_log_says_when_who_what(store):
    store.change(with_gate("accept99"), "alice", "gate", model="tiny", before="accept95", after="accept99")
    store.change(with_gate("-3.5"), "bob", "gate", model="tiny", before="accept99", after="-3.5")
    entries = store.audit()
    assert [entry["key"] for entry in entries] == ["alice", "bob"]
    assert entries[0].items() >= {"action": "gate", "model": "tiny"}.items()
    assert entries[0]["details"] == {"before": "accept95", "after": "accept99"}
    assert entries[0]["time"].endswith("+00:00")


def test_what_is_done_beside_the_state_is_on_record_and_changes_nothing(store):
    store.record("alice", "calibrate", model="tiny", images=7)
    store.change(with_gate("accept99"), "bob", "gate", model="tiny")
    first, second = store.audit()
    assert (first["number"], first["revision"], first["action"], first["details"]) == (
        1,
        None,
        "calibrate",
        {"images": 7},
    )
    assert (second["number"], second["revision"]) == (2, 1)


def test_a_change_is_made_with_its_line_of_the_audit_log_or_not_at_all(store, monkeypatch):
    def full(*_):
        raise StateNotWritten("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("portcullis.store.state._put", full)  # the line is written by then
        with pytest.raises(StateNotWritten):
            store.change(with_gate("accept99"), "alice", "gate")
    assert store.audit() == []
    assert store.read() == state()


def test_of_two_changes_of_the_same_thing_one_wins_and_the_other_is_told_who_and_what(store):
    base = store.read()
    store.change(with_gate("accept99"), "alice", "gate", base, model="tiny")
    with pytest.raises(
        Conflict, match=r"gate of tiny was changed.* from accept95 to accept99 by alice, in revision 1;"
    ):
        store.change(with_gate("accept90"), "bob", "gate", base, model="tiny")
    assert store.read().models["tiny"].gate == "accept99"
    assert store.change(with_gate("accept90"), "bob", "gate", store.read(), model="tiny")[1].revision == 2


def test_changes_of_different_things_and_to_the_same_value_disturb_nobody(store):
    base = store.read()
    store.change(with_gate("accept99"), "alice", "gate", base, model="tiny")
    store.change(with_gate("accept99"), "bob", "gate", base, model="tiny")
    swapped = lambda s: s.with_model("tiny", s.models["tiny"].model_copy(update={"default": 2}))  # noqa: E731
    _, after = store.change(swapped, "carol", "default", base, model="tiny")
    assert (after.models["tiny"].gate, after.models["tiny"].default, after.revision) == ("accept99", 2, 2)


def test_a_model_that_was_unloaded_is_not_brought_back_by_who_has_not_seen_it_go(store):
    base = store.read()
    store.change(lambda s: s.without_model("tiny"), "alice", "unload", base, model="tiny")
    swapped = base.models["tiny"].model_copy(update={"default": 2})
    with pytest.raises(Conflict, match="default of tiny was changed meanwhile from 1 to nothing by alice"):
        store.change(lambda s: s.with_model("tiny", swapped), "bob", "default", base, model="tiny")
    store.change(lambda s: s.without_model("tiny"), "bob", "unload", base, model="tiny")
    assert store.read().revision == 1


def test_a_database_that_went_back_is_followed_by_those_who_were_further(store):
    for gate in ("accept90", "accept99"):
        store.change(with_gate(gate), "alice", "gate")
    store.write(state("accept80", revision=1))  # restored from a backup
    store.raise_above(2, fallback=state("accept99", revision=2))
    assert (store.read().revision, store.read().models["tiny"].gate) == (3, "accept80")
    store.raise_above(2, fallback=state("accept99", revision=2))  # the next link that comes
    assert store.read().revision == 3


def test_a_database_that_is_empty_gets_the_state_that_is_known(database):
    store = StateStore(database)
    store.raise_above(7, fallback=state("accept99", revision=7))
    assert (store.read().revision, store.read().models["tiny"].gate) == (8, "accept99")


def test_the_newest_version_of_every_name_is_planned(tmp_path):
    for version in (1, 2, 10):
        tiny.write(tmp_path, version=version)
    tiny.write(tmp_path, name="other")
    planned = plan(DirectorySource(tmp_path), (), "accept95", None)
    assert {name: model.default for name, model in planned.models.items()} == {"tiny": 10, "other": 1}
    pinned = plan(DirectorySource(tmp_path), ("tiny@2",), "accept95", None)
    assert pinned.models.keys() == {"tiny"}
    assert (pinned.models["tiny"].default, pinned.models["tiny"].is_pinned) == (2, True)


def test_an_admins_gate_survives_a_restart_until_the_setting_changes(tmp_path):
    tiny.write(tmp_path)
    first = plan(DirectorySource(tmp_path), (), "accept95", None)
    changed = with_gate("accept99")(first)
    assert plan(DirectorySource(tmp_path), (), "accept95", changed).models["tiny"].gate == "accept99"
    assert plan(DirectorySource(tmp_path), (), "accept90", changed).models["tiny"].gate == "accept90"


@pytest.mark.parametrize("serve", [("nobody",), ("tiny@7",), ("tiny@x",)])
def test_a_bundle_that_is_not_there_is_named_with_those_that_are(tmp_path, serve):
    tiny.write(tmp_path)
    with pytest.raises(SettingsError, match=f"no bundle {serve[0]}.*there are: tiny@1"):
        plan(DirectorySource(tmp_path), serve, "accept95", None)


def test_an_empty_models_directory_says_how_to_fill_it(tmp_path):
    with pytest.raises(SettingsError, match="portcullis-train run"):
        plan(DirectorySource(tmp_path), (), "accept95", None)


def test_a_restart_comes_back_to_the_same_versions_whatever_has_appeared(tmp_path):
    for version in (1, 2, 3):
        tiny.write(tmp_path, version=version)
    tiny.write(tmp_path, name="other")
    first = plan(DirectorySource(tmp_path), (), "accept95", None)
    shadow = Shadow(version=2, share=0.5, session=7)
    served = ServedModel(default=1, loaded=(3,), is_pinned=True, gate="accept90", shadow=shadow)
    changed = first.with_model("tiny", served).without_model("other")
    tiny.write(tmp_path, version=4)
    tiny.write(tmp_path, name="newcomer")
    again = plan(DirectorySource(tmp_path), (), "accept95", changed)
    assert again.models == {"tiny": served}
    assert again.unloaded == ("other",)
    assert served.versions == (1, 2, 3)


def test_a_changed_serve_setting_wins_over_older_admin_calls(tmp_path):
    for version in (1, 2):
        tiny.write(tmp_path, version=version)
    pinned = plan(DirectorySource(tmp_path), ("tiny@1",), "accept95", None)
    assert plan(DirectorySource(tmp_path), ("tiny@1",), "accept95", pinned.without_model("tiny")).models == {}
    again = plan(DirectorySource(tmp_path), ("tiny",), "accept95", pinned.without_model("tiny"))
    assert (again.models["tiny"].default, again.models["tiny"].is_pinned, again.unloaded) == (2, False, ())


def test_versions_that_are_gone_from_the_disk_are_not_wanted_back(tmp_path):
    tiny.write(tmp_path, version=2)
    served = ServedModel(default=1, loaded=(3,), gate="accept95", shadow=Shadow(version=9, share=1))
    before = plan(DirectorySource(tmp_path), (), "accept95", None).with_model("tiny", served)
    assert plan(DirectorySource(tmp_path), (), "accept95", before).models["tiny"] == ServedModel(
        default=2, gate="accept95"
    )
    assert "gone" not in plan(DirectorySource(tmp_path), (), "accept95", before.with_model("gone", served)).models


# -- the state to start with ------------------------------------------------------------------------------------------


def settings(models, runtime, **others):
    return Settings(models=models, runtime_directory=runtime, **others)


def test_what_an_earlier_version_kept_in_a_file_is_taken_over_once(models, local, tmp_path):
    earlier = plan(DirectorySource(models), (), "accept95", None)
    earlier = earlier.with_model("tiny", earlier.models["tiny"].model_copy(update={"gate": "accept80"}))
    (tmp_path / "state.json").write_text("cut sho")
    (tmp_path / "state.twin.json").write_text(json.dumps({"sha256": "…", "state": earlier.model_dump(mode="json")}))
    store = StateStore(local)
    assert begin(store, None, settings(models, tmp_path), DirectorySource(models)).models["tiny"].gate == "accept80"
    assert store.read().models["tiny"].gate == "accept80"
    assert list(tmp_path.glob("state*.json")) == []


def test_in_a_fleet_settings_speak_only_where_there_is_no_state_yet(models, local, fleet, tmp_path, caplog):
    kept, shared = StateStore(local), StateStore(fleet)
    first = begin(kept, shared, settings(models, tmp_path), DirectorySource(models))
    assert (first.revision, shared.read()) == (1, first)
    shared.change(with_gate("accept80"), "alice", "gate")
    again = begin(kept, shared, settings(models, tmp_path, gate="accept99"), DirectorySource(models))
    assert (again.models["tiny"].gate, kept.read()) == ("accept80", again)
    assert "its database counts" in caplog.text


def test_a_start_without_the_fleets_database_serves_what_was_known_last(models, local, cluster, tmp_path, caplog):
    away = StateStore(Postgres(cluster.url("nobody")))
    kept = StateStore(local)
    first = begin(kept, away, settings(models, tmp_path), DirectorySource(models))
    assert first.revision == 0  # nothing was known: the settings
    kept.write(with_gate("accept80")(kept.read()))
    assert begin(kept, away, settings(models, tmp_path), DirectorySource(models)).models["tiny"].gate == "accept80"
    assert "starting without the fleet's database" in caplog.text


def test_a_gate_that_one_of_several_models_cannot_promise_is_refused_naming_that_model(local, tmp_path):
    models = tmp_path / "both"
    tiny.write_fitted(models, "fitted", version=3)
    tiny.write(models, "plain", version=1)
    options = settings(models, tmp_path, gate="accept95:by-class")
    with pytest.raises(UnknownOperatingPoint, match=r"gate of plain/1: accept95:by-class needs .* name in serve the"):
        begin(StateStore(local), None, options, DirectorySource(models))
    options = settings(models, tmp_path, gate="accept95:by-class", serve=("fitted",))
    assert begin(StateStore(local), None, options, DirectorySource(models)).models["fitted"].gate == "accept95:by-class"
