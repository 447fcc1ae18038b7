"""A damaged database of an instance, replaced while it runs; with whole processes: test_faults.py and test_fleet.py."""

import pytest

from portcullis.processes.keeping import Keeper
from portcullis.store.followers import Followed, Followers, read_workers
from portcullis.store.state import DesiredState, ServedModel, StateStore
from tests.sabotage import DAMAGES, damage_database

STATE = DesiredState(revision=7, configured_gate="accept95", models={"tiny": ServedModel(default=1, gate="accept95")})


@pytest.fixture
def store(local):
    store = StateStore(local)
    store.write(STATE)
    Followers(local, "here").confirm(0, Followed(revision=7))
    return store


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("is_copy", [False, True], ids=["alone", "in a fleet"])
def test_the_state_and_who_followed_it_come_back(local, store, tmp_path, damage, is_copy):
    keeper = Keeper(local, STATE, is_copy)
    keeper.look()
    damage_database(tmp_path, damage)
    for _ in range(11):  # of so many looks one reads from the file in any case
        keeper.look()
    assert store.read().models == STATE.models
    with local.reading() as session:
        assert read_workers(session) == {0: Followed(revision=7)}


@pytest.mark.parametrize(("is_copy", "is_raised"), [(False, True), (True, False)], ids=["alone", "in a fleet"])
def test_alone_every_worker_takes_up_what_is_known_and_in_a_fleet_none_goes_back(local, store, is_copy, is_raised):
    """A change that came after the last look is lost on one machine; a fleet's database has it."""
    keeper = Keeper(local, STATE, is_copy)
    keeper.look()
    local.file.unlink()
    keeper.look()
    assert (store.read().revision > STATE.revision) is is_raised
