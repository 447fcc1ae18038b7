import os

import pytest

from portcullis.store.followers import Followed, Followers


@pytest.fixture
def followers(tmp_path):
    followers = Followers(tmp_path)
    followers.forget()
    return followers


def test_a_worker_is_behind_until_it_has_taken_up_the_state(followers):
    followers.confirm(0, Followed(revision=3))
    followers.confirm(1, Followed(revision=2))
    assert followers.behind(2) == {}
    assert followers.behind(3) == {1: "it has not taken up the change yet"}
    followers.confirm(1, Followed(revision=4))
    assert followers.behind(3) == {}
    assert set(followers.behind(4)) == {0}


def test_nothing_is_expected_of_a_worker_that_has_died_until_its_successor_speaks(followers):
    followers.confirm(0, Followed(revision=3))
    followers.confirm(1, Followed(revision=4))
    followers.forget(0)
    assert followers.behind(4) == {}
    followers.confirm(0, Followed(revision=3))
    assert set(followers.behind(4)) == {0}


def test_a_worker_says_what_it_lacks_by_name_and_whether_that_is_a_gate(followers):
    behind = {"a": "opening version 2", "b": "cannot promise accept99"}
    followers.confirm(7, Followed(revision=3, behind=behind, other_gate=("b",)))
    assert followers.behind(3, "a") == {7: "opening version 2"}
    assert followers.behind(3, "a", only_gate=True) == {}
    assert followers.behind(3, "b", only_gate=True) == {7: "cannot promise accept99"}
    assert followers.behind(3, "c") == {}
    assert followers.behind(3) == {7: "a: opening version 2; b: cannot promise accept99"}


def test_a_word_that_cannot_be_read_is_no_word(followers, tmp_path):
    followers.confirm(0, Followed(revision=3))
    (tmp_path / "confirmed" / "0").write_text("cut sho")
    assert followers.behind(1) == {0: "what it says of itself cannot be read"}


def test_what_need_not_outlive_a_loss_of_power_costs_no_sync(followers, monkeypatch):
    monkeypatch.setattr(os, "fsync", None)
    followers.confirm(0, Followed(revision=1))
    assert followers.behind(1) == {}
