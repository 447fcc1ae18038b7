"""The evidence of drift across workers, restarts and swaps: real rings and files, no processes."""

import asyncio
import json
import math

import httpx
import numpy as np
import pytest

from portcullis.bundle import gate
from portcullis.bundle.sources.source import DirectorySource
from portcullis.drift import histogram
from portcullis.drift.evidence import Detector
from portcullis.drift.fleet import FleetEvidence
from portcullis.drift.instances import InstanceReader
from portcullis.drift.published import DriftReader, read_drift
from portcullis.drift.rings import RingWriter, model_key, ring_path
from portcullis.drift.watcher import MAX_POINTS, POINT_SECONDS, DriftWatch
from portcullis.errors import StateNotWritten
from portcullis.lifecycle.first_state import plan
from portcullis.processes.stores import DATABASE_FILE, open_local
from portcullis.schemas.drift import DriftInfo
from portcullis.store.sqlite import Sqlite
from portcullis.store.state import StateStore
from tests import tiny
from tests.hammer import eventually
from tests.service.pictures import RED, STRANGE

WINDOW = 200
ALARM = 10_000


class Bench:
    """A models directory, a runtime directory and two rings."""

    def __init__(self, directory):
        self.models, self.runtime = directory / "models", directory / "runtime"
        for version, sharpness in ((1, 1.0), (2, 1.5)):
            tiny.write(self.models, version=version, sharpness=sharpness)
        (self.runtime / "rings").mkdir(parents=True)
        self.database = Sqlite(self.runtime / DATABASE_FILE)
        open_local(self.database)
        self.store = StateStore(self.database)
        self.serve(1)
        self.rings = [RingWriter(ring_path(self.runtime / "rings", slot), capacity=1000) for slot in range(2)]
        self.sent: list[float] = []
        self.time = 1e9

    def serve(self, version):
        state = plan(DirectorySource(self.models), (f"tiny@{version}",), "accept95", self.store.read())
        self.store.write(state)

    def watch(self, fleet=None):
        return DriftWatch(DirectorySource(self.models), self.database, self.runtime / "rings", WINDOW, ALARM, fleet)

    def send(self, p_values, version=1, clock=None):
        calibration = tiny.manifest(version=version).calibration
        for index, p in enumerate(p_values):
            score = calibration.scores[int(p * (calibration.num_images - 1))]
            value = gate.p_value(score, calibration)
            self.time += 1
            self.rings[index % 2].append(
                model_key("tiny", version), self.time if clock is None else clock(), score, value, 0, value <= 0.05
            )
            self.sent.append(value)

    def overwrite(self, body):
        with self.database.writing() as session:
            session.run("UPDATE drift SET body = :body", body=body)

    def published(self):
        return read_drift(self.database).models["tiny"]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def uniform(count, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, count)


def test_it_reports_on_the_window_and_gathers_evidence_over_all_workers(bench):
    watch = bench.watch()
    bench.send(uniform(500))
    watch.update()
    model = bench.published()
    assert (model.report.num_images, model.report.num_images_since_reset) == (WINDOW, 500)
    assert model.report.reject_ratio == pytest.approx(np.mean(np.array(bench.sent[-WINDOW:]) <= 0.05))
    assert model.num_rejected == sum(p <= 0.05 for p in bench.sent)
    assert not model.report.alarm
    bench.send([0.001] * 100)
    watch.update()
    assert bench.published().report.alarm
    expected = Detector(tiny.manifest().calibration, ALARM)
    expected.update(np.array(bench.sent, np.float32))
    assert bench.published().report.evidence_log10 == pytest.approx(expected.evidence_log10, rel=1e-6)


def test_a_restart_goes_on_where_it_stopped_and_counts_nothing_twice(bench):
    bench.send(uniform(300))
    first = bench.watch()
    first.update()
    before = bench.published()
    bench.send([0.001] * 20)  # while nobody looks
    second = bench.watch()
    second.update()
    straight = Detector(tiny.manifest().calibration, ALARM)
    straight.update(np.array(bench.sent, np.float32))
    after = bench.published().report
    assert (before.report.num_images_since_reset, after.num_images_since_reset) == (300, 320)
    assert after.evidence_log10 == pytest.approx(straight.evidence_log10, rel=1e-6)
    assert after.reject_ratio == pytest.approx(np.mean(np.array(bench.sent[-WINDOW:]) <= 0.05))
    assert bench.published().history[: len(before.history)] == before.history


def test_a_swap_begins_anew_even_back_to_the_version_before(bench):
    watch = bench.watch()
    bench.send([0.001] * 100)
    watch.update()
    assert bench.published().report.alarm
    for version in (2, 1):
        bench.serve(version)
        watch.update()
        report = bench.published().report
        assert bench.published().version == version
        assert (report.num_images, report.num_images_since_reset, report.alarm) == (0, 0, False)
        bench.send(uniform(10), version)
        watch.update()
        assert bench.published().report.num_images_since_reset == 10


def test_scores_are_counted_over_all_workers_and_go_on_over_a_restart(bench):
    scores = tiny.manifest().calibration.scores
    sent = [scores[int(p * (len(scores) - 1))] for p in uniform(300)]
    bench.send(uniform(300)[:200])
    bench.watch().update()
    bench.send(uniform(300)[200:])  # while nobody looks
    bench.watch().update()
    counted = bench.published().scores
    expected = histogram.plus(histogram.empty(tiny.manifest().calibration), np.float32(sent))
    assert (counted.edges, counted.counts) == (expected.edges, expected.counts)
    assert counted.sum == pytest.approx(expected.sum)
    bench.watch().update()
    assert bench.published().scores == counted


def test_a_swap_counts_scores_anew_in_the_buckets_of_the_new_version(bench):
    watch = bench.watch()
    bench.send(uniform(100))
    watch.update()
    bench.serve(2)
    watch.update()
    bench.send(uniform(10), 2)
    watch.update()
    counted = bench.published().scores
    assert sum(counted.counts) == 10
    assert counted.edges == histogram.bucket_edges(tiny.manifest(version=2, sharpness=1.5).calibration)


def test_a_file_from_before_scores_were_counted_keeps_its_evidence(bench):
    bench.send(uniform(30))
    bench.watch().update()
    [row] = bench.database.read("SELECT body FROM drift")
    content = json.loads(row["body"])
    del content["scores"]
    bench.overwrite(json.dumps(content))
    bench.watch().update()
    assert bench.published().report.num_images_since_reset == 30
    assert sum(bench.published().scores.counts) == 0


def test_a_model_that_is_unloaded_is_not_reported_on(bench):
    watch = bench.watch()
    watch.update()
    assert set(read_drift(bench.database).models) == {"tiny"}
    bench.store.change(lambda state: state.without_model("tiny"), "alice", "unload")
    watch.update()
    assert read_drift(bench.database).models == {}


def test_a_clock_that_jumps_costs_no_score(bench):
    watch = bench.watch()
    clock = iter([1e9, 1e9 + 1, 5.0, 2e9, -1.0, 1e9 + 2, math.inf, 0.0, 1e9, 7.0] * 30).__next__
    bench.send(uniform(300), clock=clock)
    watch.update(now=5.0)
    assert bench.published().report.num_images_since_reset == 300
    again = bench.watch()
    again.update(now=1.0)
    report = bench.published().report
    assert (report.num_images, report.num_images_since_reset) == (WINDOW, 300)


@pytest.mark.parametrize("content", ["", "{", '{"version": "x"}', "[]"])
def test_a_report_that_cannot_be_read_is_begun_anew_from_the_rings(bench, content):
    bench.send(uniform(30))
    bench.watch().update()
    bench.overwrite(content)
    assert DriftReader(bench.database).readings() == []
    bench.watch().update()
    assert bench.published().report.num_images_since_reset == 30


def test_a_database_that_was_made_anew_is_begun_anew_from_the_rings(bench):
    bench.send(uniform(30))
    bench.watch().update()
    reader = DriftReader(bench.database)
    assert len(reader.readings()) == 1
    state = bench.store.read()
    bench.database.set_aside()
    assert len(reader.readings()) == 1  # what was known last stands
    open_local(bench.database)
    bench.store.write(state)
    assert reader.readings() == []
    bench.watch().update()
    assert bench.published().report.num_images_since_reset == 30


def test_a_full_disk_keeps_the_evidence_in_memory(bench, monkeypatch):
    def full(*_, **__):
        raise StateNotWritten("no space left")

    watch = bench.watch()
    with monkeypatch.context() as patch:
        patch.setattr("portcullis.drift.watcher.write_drift", full)
        bench.send([0.001] * 50)
        watch.update()
        watch.update()
    bench.send([0.001] * 50)
    watch.update()
    assert bench.published().report.num_images_since_reset == 100


def test_a_state_that_cannot_be_read_for_a_moment_costs_no_evidence(bench):
    watch = bench.watch()
    bench.send([0.001] * 50)
    watch.update()
    state = bench.store.read()
    bench.database.set_aside()
    watch.update()
    open_local(bench.database)
    bench.store.write(state)
    bench.send([0.001] * 50)
    watch.update()
    assert bench.published().report.num_images_since_reset == 100


def test_the_history_is_bounded_and_evenly_spaced(bench):
    watch = bench.watch()
    for second in range(int(POINT_SECONDS * 8)):
        watch.update(now=1000.0 + second)
    assert len(bench.published().history) == 8
    for point in range(MAX_POINTS):
        watch.update(now=2000.0 + point * POINT_SECONDS)
    assert len(bench.published().history) == MAX_POINTS


def test_a_bundle_that_is_gone_stops_its_report_and_no_other(bench):
    tiny.write(bench.models, name="other")
    bench.store.write(plan(DirectorySource(bench.models), ("tiny", "other"), "accept95", None))
    (bench.models / "tiny" / "2" / "model.onnx").write_bytes(b"damaged")
    bench.watch().update()
    assert set(read_drift(bench.database).models) == {"other"}


def test_the_running_service_reports_what_it_answered(running_service):
    with httpx.Client(base_url=running_service.url, timeout=30) as client:
        before = DriftInfo.model_validate(client.get("/v1/models/tiny/drift").json())
        for _ in range(10):
            client.post("/v1/predict", content=RED)
            client.post("/v1/predict", content=STRANGE)

        def report():
            return DriftInfo.model_validate(client.get("/v1/models/tiny/drift").json())

        eventually(lambda: report().num_images_since_reset >= before.num_images_since_reset + 20)
        found = report()
        assert (found.model, found.version, found.labels) == ("tiny", 1, tiny.LABELS)
        assert sum(found.p_value_shares) == pytest.approx(1)
        assert 0 < found.reject_ratio < 1
        assert found.reject_ratio_interval[0] < found.reject_ratio < found.reject_ratio_interval[1]
        eventually(lambda: report().history)
        assert client.get("/v1/models/nobody/drift").status_code == 404
        text = client.get("/metrics").text
    for name in ("drift_psi", "drift_ks", "drift_evidence_log10", "drift_alarm", "reject_ratio", "drift_window_images"):
        assert f'portcullis_{name}{{model="tiny",version="1"}}' in text
    assert 'portcullis_score_quantile{level="0.5",model="tiny",version="1"}' in text
    assert 'portcullis_score_bucket{le="+Inf",model="tiny",version="1"}' in text


def test_what_is_counted_is_told_to_the_fleet_over_restarts_and_swaps_and_its_evidence_is_known_here(bench, fleet):
    def begin():
        evidence = FleetEvidence("a", fleet.clock, ALARM)
        return evidence, bench.watch(evidence)

    def look(evidence, watch):
        """As both threads do each second; what is read is published at the next update."""
        for _ in range(2):
            watch.update()
            with fleet.line() as line:
                evidence.visit(line)
        watch.update()
        return bench.published().fleet

    bench.send(uniform(100))
    evidence, watch = begin()
    assert look(evidence, watch).num_images_since_reset == 100
    bench.send([0.001] * 50)
    watch.update()  # counted and kept, and the process ends before it is told
    known = look(*begin())
    assert (known.num_images_since_reset, known.alarm, known.updated_by) == (150, True, "a")
    [seen] = asyncio.run(InstanceReader(fleet).read("tiny"))
    assert (seen.instance, seen.report.gate, seen.num_taken) == ("a", "accept95", 150)
    assert seen.report.alarm == bench.published().report.alarm
    evidence, watch = begin()
    bench.serve(2)
    bench.send(uniform(30), version=2)
    assert look(evidence, watch).num_images_since_reset == 30


def test_a_fleet_that_forgot_a_series_is_told_anew_and_the_log_says_what_it_lacks(bench, fleet, caplog):
    evidence = FleetEvidence("a", fleet.clock, ALARM)
    bench.send(uniform(40))
    bench.watch().update()  # for itself, before it joined any fleet
    watch = bench.watch(evidence)
    watch.update()
    with fleet.line() as line:
        evidence.visit(line)
    bench.send(uniform(10))
    watch.update()
    assert "its 40 images" in caplog.text
    with fleet.line() as line:
        evidence.visit(line)
    watch.update()
    assert bench.published().fleet.num_images_since_reset == 10
