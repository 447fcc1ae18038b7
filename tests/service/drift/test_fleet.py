"""The evidence of a whole fleet: instances that count, tell, take over and come back, on both engines; no processes."""

import json

import numpy as np
import pytest

from bench import drift_streams as streams
from portcullis.drift.block_evidence import BlockEvidence, after, begin
from portcullis.drift.fleet import FleetEvidence, Said
from portcullis.drift.tally import Tally, watched
from portcullis.store import drift_counts
from portcullis.store.drift_counts import Told
from portcullis.store.followers import beat

A = 10_000.0
EVENTS = streams.new_detector(np.arange(1000.0), A).events


class Instance:
    """What counts in one supervisor, with the link that it would have."""

    def __init__(self, database, name="a", version=1):
        self.database, self.name, self.version = database, name, version
        self.tally = Tally(EVENTS)
        self.fleet = FleetEvidence(name, database.clock, A)

    @property
    def watched(self):
        return watched("m", self.version, None, EVENTS)

    def count(self, p_values):
        self.tally.take(np.float32(p_values))
        return self

    def say(self):
        """As the drift thread does each second."""
        if self.tally.series in self.fleet.forgotten():
            self.tally.begin_anew()
        tally = self.tally
        body = json.dumps({"name": self.name})
        told = Told(
            tally.series, "m", self.watched, json.dumps(tally.bounds), tally.num_images,
            json.dumps(tally.counts.tolist()), body,
        )  # fmt: skip
        self.fleet.say([Said(told, tally.is_new)])

    def visit(self):
        self.say()
        with self.database.line() as line:
            with line.writing() as session:
                beat(session, self.database.clock, self.name, {})
            self.fleet.visit(line)
        return self.fleet.reading(self.watched)

    def restart(self):
        """The same runtime directory, another process."""
        again = Instance(self.database, self.name, self.version)
        again.tally.go_on(self.tally.series, self.tally.counts.tolist())
        return again

    def swap(self, version):
        self.version = version
        self.tally = Tally(EVENTS)


def age_everything(database, seconds):
    """As if so long had passed by the database's clock."""
    with database.writing() as session:
        session.run("UPDATE drift_lead SET told = told - :seconds", seconds=seconds)
        session.run("UPDATE drift_counts SET told = told - :seconds", seconds=seconds)


def expected(*blocks):
    evidence = begin(EVENTS.bounds.tolist(), A)
    for block in blocks:
        evidence = after(evidence, EVENTS.counts(np.float32(block)))
    return evidence


def kept(database, watched):
    [row] = database.read("SELECT body FROM drift_evidence WHERE watched = :watched", watched=watched)
    return BlockEvidence.model_validate_json(row["body"])


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_the_evidence_is_of_the_sum_of_what_all_have_counted(database, random):
    a, b = Instance(database, "a"), Instance(database, "b")
    first, second, third = random.random((3, 50)) * 0.7
    assert a.count(first).visit().num_images_since_reset == 50
    assert b.count(second).visit().num_images_since_reset == 50  # told, not taken in: that is a's to do
    reading = a.count(third).visit()
    assert (reading.num_images_since_reset, reading.updated_by) == (150, "a")
    assert kept(database, a.watched) == expected(first, [*second, *third])
    assert b.visit().evidence_log10 == reading.evidence_log10 == pytest.approx(kept(database, a.watched).evidence_log10)


def test_drift_that_one_of_three_sees_raises_the_fleets_alarm(database, random):
    fleet = [Instance(database, name) for name in "abc"]
    for _ in range(20):
        for instance in fleet:
            drifted = instance.name == "c"
            instance.count(np.full(30, 0.001) if drifted else random.random(30)).visit()
    assert fleet[0].visit().alarm
    assert fleet[2].visit().num_alarms_since_reset == 1


def test_to_tell_twice_counts_nothing_twice_and_a_missed_telling_loses_nothing(database):
    a = Instance(database).count([0.001] * 5)
    for _ in range(3):
        assert a.visit().num_images_since_reset == 5
    a.count([0.5] * 4).say()  # the database is away
    a.count([0.5] * 3)
    assert a.visit().num_images_since_reset == 12


def test_another_takes_over_and_goes_on_from_what_was_kept(database, random):
    a, b = Instance(database, "a"), Instance(database, "b")
    blocks = random.random((3, 40)) * 0.8
    a.count(blocks[0]).visit()
    b.count(blocks[1]).visit()
    assert b.visit().updated_by == "a"
    age_everything(database, drift_counts.LEAD_SECONDS)  # a is dead, hangs or is cut off
    assert b.visit().updated_by == "b"
    b.count(blocks[2]).visit()
    assert kept(database, a.watched) == expected(*blocks)
    a.visit()  # and is back
    assert (b.visit().updated_by, b.visit().num_images_since_reset) == ("b", 120)


def test_who_dies_while_taking_in_has_taken_nothing(database):
    a, b = Instance(database, "a").count([0.3] * 10), Instance(database, "b")
    a.visit()
    a.count([0.3] * 7).say()
    with pytest.raises(ZeroDivisionError), database.line() as line, line.writing() as session:
        assert drift_counts.tell(session, database.clock, a.fleet._said[0].told)
        assert drift_counts.take_lead(session, database.clock, "a")
        a.fleet._lead(session, 0.0)
        raise ZeroDivisionError
    age_everything(database, drift_counts.LEAD_SECONDS)
    assert b.visit().num_images_since_reset == 10
    a.visit()
    assert b.visit().num_images_since_reset == 17


def test_only_one_takes_in_at_a_time(fleet):
    with fleet.line() as one, fleet.line() as other, one.writing() as here:
        assert drift_counts.take_lead(here, fleet.clock, "a")
        with other.writing() as there:
            assert not drift_counts.take_lead(there, fleet.clock, "b")
    with fleet.writing() as session:
        assert drift_counts.take_lead(session, fleet.clock, "b")


def test_a_restart_goes_on_with_its_series(database):
    a = Instance(database).count([0.3] * 10)
    a.visit()
    a.count([0.3] * 5)  # counted, kept in its own file, and not told yet
    again = a.restart().count([0.3] * 2)
    assert again.visit().num_images_since_reset == 17


def test_a_restart_with_nothing_kept_begins_another_series_and_what_was_told_stays(database):
    Instance(database).count([0.3] * 10).visit()
    assert Instance(database).count([0.3] * 4).visit().num_images_since_reset == 14


def test_who_went_back_behind_what_it_told_begins_anew(database):
    a = Instance(database).count([0.3] * 10)
    before = a.restart()
    a.count([0.3] * 10).visit()
    before.count([0.3]).visit()  # a loss of power: its file is as it was half the images ago
    assert before.tally.num_images == 11
    assert before.visit().num_images_since_reset == 20
    assert before.tally.num_images == 0
    assert before.count([0.3] * 3).visit().num_images_since_reset == 23


def test_who_joins_a_fleet_counts_from_then_on(database):
    """What one machine has counted for itself since long ago is not told to a database that never heard of it."""
    alone = Instance(database).count(np.full(1000, 0.001)).restart()
    alone.visit()
    alone.visit()
    assert alone.count([0.5] * 3).visit().num_images_since_reset == 3


def test_a_database_that_begins_empty_is_told_what_comes_from_then_on(database):
    a = Instance(database).count([0.3] * 10)
    a.visit()
    with database.writing() as session:
        for table in ("drift_counts", "drift_taken", "drift_evidence", "drift_lead"):
            session.run(f"DELETE FROM {table}")
    a.count([0.3])
    a.visit()
    a.visit()
    assert a.count([0.3] * 2).visit().num_images_since_reset == 2


def test_versions_have_evidence_of_their_own_while_both_are_served(database):
    a, b = Instance(database, "a").count([0.001] * 100), Instance(database, "b").count([0.4] * 10)
    b.visit()
    assert a.visit().num_images_since_reset == 10
    assert b.visit().alarm
    a.swap(2)
    assert a.count([0.5] * 5).visit() is None  # told; b takes it in
    b.count([0.4] * 10).visit()
    assert (a.visit().num_images_since_reset, a.visit().alarm) == (5, False)
    assert b.visit().num_images_since_reset == 120


def test_a_swap_of_all_begins_anew_even_back_to_the_version_before(database):
    a = Instance(database).count([0.001] * 100)
    assert a.visit().alarm
    for version in (2, 1):
        a.swap(version)
        reading = a.count([0.5] * 3).visit()
        assert (reading.num_images_since_reset, reading.alarm) == (3, False)
    assert len(database.read("SELECT * FROM drift_evidence")) == 1


def test_a_swap_there_and_back_between_two_looks_begins_anew_too(database):
    a = Instance(database).count([0.001] * 100)
    assert a.visit().alarm
    a.count([0.001] * 7).say()  # not told before the swap: of no use any more
    a.swap(2)
    a.swap(1)
    assert a.count([0.5] * 3).visit().num_images_since_reset == 3


def test_who_was_killed_before_it_could_tell_of_a_swap_tells_when_it_is_back(database):
    killed = Instance(database).count([0.001] * 100)
    assert killed.visit().alarm
    again = Instance(database, version=2)  # swapped, and killed before it said that the series is over
    assert again.count([0.5] * 3).visit().num_images_since_reset == 3
    again.visit()
    again.swap(1)
    reading = again.count([0.5] * 4).visit()
    assert (reading.num_images_since_reset, reading.alarm) == (4, False)


def test_a_replacement_of_every_instance_in_turn_ends_nothing(database):
    """New ones have other directories; each comes before the one that it replaces goes."""
    old = Instance(database, "old").count([0.3] * 10)
    old.visit()
    new = Instance(database, "new").count([0.3] * 5)
    new.visit()
    age_everything(database, drift_counts.LEAD_SECONDS)
    assert new.count([0.3]).visit().num_images_since_reset == 16
    newer = Instance(database, "newer").count([0.3] * 2)
    newer.visit()
    assert new.visit().num_images_since_reset == 18


def test_the_evidence_outlives_a_stop_of_the_whole_fleet(database):
    a = Instance(database).count([0.001] * 100)
    assert a.visit().alarm
    age_everything(database, 2 * drift_counts.LIVING_SECONDS)
    assert a.restart().visit().alarm


def test_series_of_instances_long_gone_are_forgotten(database):
    Instance(database, "gone").count([0.5] * 5).visit()
    age_everything(database, drift_counts.FORGOTTEN_SECONDS + 60)
    a = Instance(database, "a").count([0.5])
    a.visit()
    assert {row["instance"] for row in database.read("SELECT instance FROM drift_counts")} == {"a"}
    assert len(database.read("SELECT * FROM drift_taken")) == 1


def test_counts_that_cannot_be_are_left_out_and_said(database, caplog):
    a = Instance(database).count([0.3] * 10)
    a.visit()
    a.tally.counts = a.tally.counts + np.array([1, *[5] * (len(a.tally.counts) - 1)])
    assert a.visit().num_images_since_reset == 10
    assert "cannot be" in caplog.text
    assert a.count([0.3]).visit().num_images_since_reset == 11


def test_who_follows_lately_is_listed_with_what_is_taken_of_it(database):
    a, b = Instance(database, "a").count([0.3] * 10), Instance(database, "b").count([0.3] * 4)
    a.visit()
    b.visit()
    a.visit()
    with database.reading() as session:
        rows = drift_counts.read_instances(session, database.clock, "m")
    assert {(row["instance"], row["num_taken"]) for row in rows} == {("a", 10), ("b", 4)}
    assert all(row["beat_ago"] < 60 and row["told_ago"] < 60 for row in rows)


def test_an_idle_instance_writes_nothing_until_it_must(database):
    a = Instance(database).count([0.3])
    a.visit()
    stamps = []
    for _ in range(2):
        a.visit()
        [row] = database.read("SELECT told FROM drift_counts")
        stamps.append(row["told"])
    assert stamps[0] == stamps[1]
    a.fleet._known = {series: (told, -1e9) for series, (told, _) in a.fleet._known.items()}
    a.visit()
    assert database.read("SELECT told FROM drift_counts")[0]["told"] > stamps[0]
