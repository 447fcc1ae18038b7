"""How far workers have come: of one instance in its file, of a fleet in its database."""

import pytest

from portcullis.store.database import Database
from portcullis.store.followers import Followed, Followers, NameTaken, Place, beat, leave
from portcullis.store.state import DesiredState, ServedModel, StateStore

HERE = "here"
STATE = DesiredState(configured_gate="accept95", models={"tiny": ServedModel(default=1, gate="accept95")})


@pytest.fixture
def followers(local):
    return Followers(local, HERE)


def test_a_worker_is_behind_until_it_has_taken_up_the_state(followers):
    followers.confirm(0, Followed(revision=3))
    followers.confirm(1, Followed(revision=2))
    assert followers.behind(2) == {}
    assert followers.behind(3) == {(HERE, 1): "it has not taken up the change yet"}
    followers.confirm(1, Followed(revision=4))
    assert followers.behind(3) == {}
    assert set(followers.behind(4)) == {(HERE, 0)}


def test_nothing_is_expected_of_a_worker_that_has_died_until_its_successor_speaks(followers):
    followers.confirm(0, Followed(revision=3))
    followers.confirm(1, Followed(revision=4))
    followers.forget(0)
    assert followers.behind(4) == {}
    followers.confirm(0, Followed(revision=3))
    assert set(followers.behind(4)) == {(HERE, 0)}
    followers.forget()
    assert followers.behind(9) == {}


def test_a_worker_says_what_it_lacks_by_name_and_whether_that_is_a_gate(followers):
    behind = {"a": "opening version 2", "b": "cannot promise accept99"}
    followers.confirm(7, Followed(revision=3, behind=behind, other_gate=("b",)))
    assert followers.behind(3, "a") == {(HERE, 7): "opening version 2"}
    assert followers.behind(3, "a", only_gate=True) == {}
    assert followers.behind(3, "b", only_gate=True) == {(HERE, 7): "cannot promise accept99"}
    assert followers.behind(3, "c") == {}
    assert followers.behind(3) == {(HERE, 7): "a: opening version 2; b: cannot promise accept99"}
    assert str(*followers.behind(3)) == "worker 7 of here"


def say(database: Database, instance, *revisions, behind=(), home=""):
    workers = {slot: Followed(revision=revision, behind=dict(behind)) for slot, revision in enumerate(revisions)}
    with database.writing() as session:
        beat(session, database.clock, instance, workers, home)


def test_in_a_fleet_every_living_instance_is_waited_for_and_named(database, local):
    followers = Followers(local, HERE, fleet=database)
    say(database, "a", 3, 3)
    say(database, "b", 3, 2)
    say(database, "c")  # its workers are starting
    assert followers.behind(3) == {Place("b", 1): "it has not taken up the change yet"}
    say(database, "b", 3, 3, behind={"tiny": "opening version 2"}.items())
    assert set(followers.behind(3)) == {("b", 0), ("b", 1)}
    assert followers.behind(3, "other") == {}
    say(database, "b", 4, 4)
    assert set(followers.behind(4)) == {("a", 0), ("a", 1)}


def test_after_a_database_went_back_nobody_has_followed_until_it_was_raised_above_them(database, local):
    """Their numbers are of changes that it has forgotten: that they are large says nothing."""
    store, followers = StateStore(database), Followers(local, HERE, fleet=database)
    store.write(STATE.model_copy(update={"revision": 4}))
    say(database, "a", 7, 7)
    say(database, "b", 4)
    _, after = store.change(lambda state: state.without_model("tiny"), "tester", "unload", model="tiny")
    assert {place.instance for place in followers.behind(after.revision)} == {"a", "b"}
    store.raise_above(7, STATE)
    say(database, "b", after.revision)
    assert {place.instance for place in followers.behind(after.revision)} == {"a", "b"}
    say(database, "a", 8, 8)
    assert {place.instance for place in followers.behind(after.revision)} == {"b"}
    say(database, "b", 8)
    assert followers.behind(after.revision) == {}


def test_an_instance_that_left_or_has_not_been_heard_for_long_is_not_waited_for(database, local):
    followers = Followers(local, HERE, fleet=database)
    for instance in ("a", "b", "c", "d"):
        say(database, instance, 1)
    with database.writing() as session:
        session.run("UPDATE instances SET beat = beat - 16 WHERE id = 'a'")
        session.run("UPDATE instances SET beat = beat - 4000 WHERE id = 'c'")
        session.run("UPDATE instances SET beat = beat + 4000 WHERE id = 'd'")  # the database's clock was set back since
    assert set(followers.behind(2)) == {("b", 0)}
    with database.writing() as session:
        leave(session, database.clock, "b")
    assert followers.behind(2) == {}
    assert {row["id"] for row in database.read("SELECT id FROM instances")} == {"a", "d"}  # forgotten: c
    say(database, "d", 1)
    assert set(followers.behind(2)) == {("d", 0)}


def test_of_two_instances_of_one_name_neither_speaks_for_the_other(database, local):
    """Or a change would be said to be followed by all while one of them has not."""
    say(database, "a", 1, home="here")
    with pytest.raises(NameTaken):
        say(database, "a", 2, home="there")
    assert set(Followers(local, HERE, fleet=database).behind(2)) == {("a", 0)}
    say(database, "a", 2, home="here")  # as after a restart
    with database.writing() as session:
        session.run("UPDATE instances SET beat = beat - 16")
    say(database, "a", 3, home="there")  # the one before it is gone
    assert [row["home"] for row in database.read("SELECT home FROM instances")] == ["there"]


def test_an_instance_of_another_service_is_understood_and_may_be_without_a_home(database, local):
    say(database, "a", 1)
    with database.writing() as session:
        session.run("UPDATE instances SET home = NULL, workers = :body", body='{"0": {"revision": 1, "newer": true}}')
    assert set(Followers(local, HERE, fleet=database).behind(2)) == {("a", 0)}
    say(database, "a", 2, home="here")
    assert Followers(local, HERE, fleet=database).behind(2) == {}
