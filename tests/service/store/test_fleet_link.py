"""The link of an instance to its fleet's database, a real PostgreSQL; whole instances: processes/test_fleet.py."""

import threading
from contextlib import contextmanager

import pytest

from portcullis.processes.stores import DATABASE_FILE, open_local
from portcullis.store.fleet_link import FleetLink
from portcullis.store.followers import Followed, Followers
from portcullis.store.notes import LINK, read_notes
from portcullis.store.pace import BEAT_SECONDS, MAX_PAUSE_SECONDS, Pace
from portcullis.store.postgresql import Postgres
from portcullis.store.sqlite import Sqlite
from portcullis.store.state import DesiredState, ServedModel, StateStore
from tests.hammer import eventually

STATE = DesiredState(revision=7, configured_gate="accept95", models={"tiny": ServedModel(default=1, gate="accept95")})


@contextmanager
def linked(local, fleet):
    stopping = threading.Event()
    thread = threading.Thread(target=FleetLink(local, fleet, "here").run, args=(stopping,))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@pytest.fixture
def kept(local):
    store = StateStore(local)
    store.write(STATE)
    Followers(local, "here").confirm(0, Followed(revision=7))
    return store


def state_in(fleet):
    rows = fleet.read("SELECT to_regclass('state') AS found")
    return StateStore(fleet).read() if rows[0]["found"] else None


def test_an_instance_that_started_without_the_database_makes_its_tables_when_it_reaches_it(local, kept, cluster):
    fleet = Postgres(cluster.new_database())
    with linked(local, fleet):
        found = eventually(lambda: state_in(fleet))
        assert found.models == STATE.models
        eventually(lambda: kept.read() == state_in(fleet))
    assert fleet.read("SELECT id FROM instances") == []


def test_a_database_that_is_replaced_by_an_empty_one_gets_tables_and_the_state_that_was_known_last(local, kept, fleet):
    with linked(local, fleet):
        before = eventually(lambda: state_in(fleet))
        with fleet.writing() as session:
            session.run("DROP SCHEMA public CASCADE")
            session.run("CREATE SCHEMA public")
        after = eventually(lambda: state_in(fleet))
        assert after.models == before.models
        assert after.revision > before.revision
        eventually(lambda: LINK not in read_notes(local))
        [line] = StateStore(fleet).audit()
        assert (line["key"], line["action"]) == ("(link)", "raise")


def test_a_word_brings_the_state_along(fleet, local, kept):
    StateStore(fleet).write(STATE.model_copy(update={"revision": 8}))
    newer = STATE.with_model("tiny", ServedModel(default=1, gate="accept99")).model_copy(update={"revision": 9})
    with fleet.writing() as session:  # nobody is notified: the look behind the notifications finds it
        session.run("UPDATE state SET revision = 9, body = :body", body=newer.model_dump_json())
    with linked(local, fleet):
        eventually(lambda: kept.read().models["tiny"].gate == "accept99")


def test_two_of_one_name_are_both_waited_for(fleet, local, kept, tmp_path, caplog):
    (tmp_path / "other").mkdir()
    other = Sqlite(tmp_path / "other" / DATABASE_FILE)
    open_local(other)
    StateStore(other).write(STATE)
    Followers(other, "here").confirm(0, Followed(revision=6))
    StateStore(fleet).write(STATE)

    def known():
        return [row["id"] for row in fleet.read("SELECT id FROM instances ORDER BY id")]

    with linked(local, fleet):
        eventually(lambda: known() == ["here"])
        with linked(other, fleet):
            first, second = eventually(lambda: known() if len(known()) == 2 else None)
            assert (first, second.startswith("here-")) == ("here", True)
            assert f"another instance of the fleet is called here; this one goes by {second}" in caplog.text
            eventually(lambda: set(Followers(local, "here", fleet).behind(7)) == {(second, 0)})
        assert known() == ["here"]
    other.close()


def test_pauses_grow_to_a_bound_and_are_drawn_at_random():
    paces = [Pace() for _ in range(500)]
    tries = [[pace.pause() for pace in paces] for _ in range(8)]
    middles = [sorted(pauses)[250] for pauses in tries]
    assert middles[0] < middles[1] < middles[2] < middles[3]
    for pauses in tries:
        assert max(pauses) <= MAX_PAUSE_SECONDS
        assert max(pauses) > 4 * min(pauses)
    for pace in paces:
        pace.has_beaten()
    assert sorted(pace.pause() for pace in paces)[250] < middles[1]


def test_instances_that_speak_at_the_same_moment_do_not_stay_in_step():
    seconds = [Pace.seconds_to_beat() for _ in range(500)]
    assert max(seconds) <= BEAT_SECONDS
    assert max(seconds) - min(seconds) > 0.1 * BEAT_SECONDS
