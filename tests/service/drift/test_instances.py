"""A fleet as it is answered: all windows as one, each instance, and what is said while the database is away."""

import asyncio
import json
import threading
import time

import numpy as np
import pytest

from portcullis.bundle.gate import P_VALUE_BUCKETS
from portcullis.drift import instances
from portcullis.drift.instances import InstanceReader, Seen, report_of, together
from portcullis.drift.window import p_value_shares, psi
from portcullis.errors import DatabaseAway
from portcullis.schemas.drift import DriftReport, FleetReading
from portcullis.store.drift_counts import Told, tell_first
from portcullis.store.followers import LIVING_SECONDS, beat
from tests.hammer import PATIENCE_SECONDS
from tests.service.drift_reports import empty_report


def seen(name, p_values=(), version=1, gate="accept95", beat_ago=1.0, evidence_log10=0.0):
    """One instance whose window holds such p-values, rejected at 0.05."""
    values, report = np.array(p_values), dict(vars(empty_report()))
    report |= {"num_images": len(values), "evidence_log10": evidence_log10}
    if len(values):
        shares = p_value_shares(values)
        ratio = float(np.mean(values <= 0.05))
        report |= {"p_value_shares": shares, "psi": psi(shares), "reject_ratio": ratio, "unsure_ratio": 0.0}
    said = report_of(version, "fitted", gate, DriftReport(**report))
    return Seen(name, said, beat_ago, beat_ago, len(values))


def test_the_windows_of_living_instances_alike_are_measured_as_one():
    random = np.random.default_rng(0)
    here, there = random.random(300), random.random(100) ** 3
    found = together(
        [seen("a", here), seen("b", there), seen("c", [0.5], version=2), seen("d", [0.5], beat_ago=LIVING_SECONDS + 1)],
        None, 1e6, 1, "fitted",
    )  # fmt: skip
    both = np.concatenate([here, there])
    assert found.num_images == 400
    assert found.psi == pytest.approx(psi(p_value_shares(both)))
    assert found.reject_ratio == pytest.approx(np.mean(both <= 0.05))
    assert found.reject_ratio_interval[0] < found.reject_ratio < found.reject_ratio_interval[1]
    assert len(found.p_value_shares) == len(P_VALUE_BUCKETS)
    assert (found.num_instances, [one.instance for one in found.instances]) == (3, ["a", "b", "c", "d"])
    assert [one.is_living for one in found.instances] == [True, True, True, False]


def test_before_anything_is_gathered_there_is_no_evidence_and_nobody_who_gathered_it():
    found = together([], None, 1e6, 1, "fitted")
    assert (found.evidence_log10, found.alarm, found.threshold, found.updated_by, found.seconds_ago) == (
        0.0, False, 1e6, None, None,
    )  # fmt: skip
    assert (found.num_images, found.psi, found.reject_ratio_interval) == (0, None, (0.0, 1.0))


def test_the_evidence_grows_old_while_nothing_is_read():
    reading = FleetReading(3.0, False, 1e6, 10, 0, "a", age_seconds=2.0, read_at=time.time() - 100)
    found = together([], reading, 1e4, 1, "fitted")
    assert (found.evidence_log10, found.threshold, found.updated_by) == (3.0, 1e6, "a")
    assert found.seconds_ago >= 102


def test_of_very_many_those_with_the_most_evidence_are_listed(monkeypatch):
    monkeypatch.setattr(instances, "MAX_LISTED", 2)
    many = [seen(name, evidence_log10=level) for name, level in (("a", 1.0), ("b", 3.0), ("c", 2.0))]
    found = together(many, None, 1e6, 1, "fitted")
    assert ([one.instance for one in found.instances], found.num_instances) == (["b", "c"], 3)


def tell(database, series, name, **report):
    body = seen(name, [0.5], **report).report.model_dump_json()
    told = Told(series, "m", "m/1//x", "[]", 1, "[1]", body)
    with database.writing() as session:
        beat(session, database.clock, name, {})
        tell_first(session, database.clock, name, told)


async def test_an_instance_is_listed_once_as_it_is_now(database):
    tell(database, "one", "a", gate="accept80")
    tell(database, "another", "a", gate="accept90")  # it was restarted without its directory
    tell(database, "b's", "b")
    with database.writing() as session:
        session.run("UPDATE drift_counts SET told = told - 30 WHERE series = 'one'")
    found = await InstanceReader(database).read("m")
    assert [(one.instance, one.report.gate, one.is_living) for one in found] == [
        ("a", "accept90", True), ("b", "accept95", True),
    ]  # fmt: skip
    assert await InstanceReader(database).read("other") == []


async def test_what_an_unknown_service_says_of_itself_is_left_out(database):
    tell(database, "one", "a")
    with database.writing() as session:
        session.run("UPDATE drift_counts SET body = :body", body=json.dumps({"of": "another age"}))
    assert await InstanceReader(database).read("m") == []


async def test_without_the_database_what_was_known_last_stands_and_is_not_asked_for_again_and_again(local, monkeypatch):
    tell(local, "one", "a")
    reader = InstanceReader(local)
    [before] = await reader.read("m")
    asked = []

    def away(*arguments):
        asked.append(arguments)
        raise DatabaseAway("away")

    monkeypatch.setattr(instances, "read_instances", away)
    monkeypatch.setattr(instances, "LOOK_SECONDS", 0.0)
    for _ in range(3):
        [after] = await reader.read("m")
        assert (after.instance, after.beat_ago >= before.beat_ago) == ("a", True)
        assert await reader.read("another") == []  # which would wait for the same database
    assert len(asked) == 1


async def test_however_many_ask_one_thread_waits_for_a_database_that_does_not_answer(local, monkeypatch):
    """The others have images to answer."""
    answers, asked = threading.Event(), []

    def silent(*arguments):
        asked.append(arguments)
        assert answers.wait(PATIENCE_SECONDS)
        return []

    monkeypatch.setattr(instances, "read_instances", silent)
    reader = InstanceReader(local)
    many = asyncio.gather(*(reader.read("m") for _ in range(200)))
    while not asked:
        await asyncio.sleep(0)
    try:
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), PATIENCE_SECONDS) == "free"
    finally:
        answers.set()
    assert await many == [[]] * 200
    assert len(asked) == 1


async def test_on_one_machine_there_is_no_fleet():
    reader = InstanceReader(None)
    assert (reader.is_in_a_fleet, await reader.read("m")) == (False, [])
