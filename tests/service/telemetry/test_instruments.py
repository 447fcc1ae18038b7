"""Files of metrics that outlive workers and full disks."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from portcullis.bundle.promises import choose
from portcullis.schemas.drift import ScoreHistogram
from portcullis.telemetry.collectors import ServedCollector, ServedVersion, expose
from portcullis.telemetry.drift_collector import DriftCollector, DriftReading
from portcullis.telemetry.files import FILE_BYTES, AllocatedFile, forget_gauges
from portcullis.telemetry.instruments import DIRECTORY_VARIABLE, Metrics, observer
from tests import tiny
from tests.service.drift_reports import empty_report

WORKER = """
import sys
from portcullis.telemetry.files import use_slot
from portcullis.telemetry.instruments import Metrics
use_slot(int(sys.argv[1]))
instruments = Metrics()
instruments.predictions.labels("tiny", "1", "accept").inc(int(sys.argv[2]))
instruments.workers_ready.set(1)
"""


def work(directory, slot, amount):
    environment = os.environ | {DIRECTORY_VARIABLE: str(directory)}
    subprocess.run([sys.executable, "-c", WORKER, str(slot), str(amount)], check=True, env=environment)


def value(directory, series):
    lines = [line for line in expose(directory).decode().splitlines() if line.startswith(series + " ")]
    return float(lines[0].rpartition(" ")[2]) if lines else None


def test_a_replaced_worker_goes_on_counting_and_a_dead_one_is_not_ready(tmp_path):
    counted = 'portcullis_predictions_total{model="tiny",verdict="accept",version="1"}'
    work(tmp_path, 0, 3)
    work(tmp_path, 1, 4)
    assert (value(tmp_path, counted), value(tmp_path, "portcullis_workers_ready")) == (7, 2)
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    forget_gauges(tmp_path, 0)
    assert (value(tmp_path, counted), value(tmp_path, "portcullis_workers_ready")) == (7, 1)
    assert {file.name: file.stat().st_size for file in tmp_path.iterdir()} == sizes  # the space stays ours
    work(tmp_path, 0, 2)
    assert (value(tmp_path, counted), value(tmp_path, "portcullis_workers_ready")) == (9, 2)


def test_every_block_of_a_file_is_on_the_disk_before_it_is_written_to(tmp_path):
    work(tmp_path, 0, 1)
    for file in tmp_path.iterdir():
        status = file.stat()
        assert status.st_size >= FILE_BYTES
        assert status.st_blocks * 512 >= status.st_size, f"{file.name} has holes"


def series(number):
    return json.dumps(["metric", "metric_total", {"number": f"{number:080d}"}, "text"])


def test_a_file_that_grows_has_no_holes_either(tmp_path):
    file = AllocatedFile(str(tmp_path / "counter_0.db"))
    for number in range(4000):
        file.write_value(series(number), float(number), 0.0)
    status = (tmp_path / "counter_0.db").stat()
    assert status.st_size > FILE_BYTES
    assert status.st_blocks * 512 >= status.st_size
    again = AllocatedFile(str(tmp_path / "counter_0.db"))
    assert again.read_value(series(3999)) == (3999.0, 0.0)
    for opened in (file, again):
        opened.close()


@pytest.mark.parametrize("content", [b"x", b"\xff" * 5000, b"\x10\x00\x00\x00" * 2000, bytes(3)])
def test_a_damaged_file_is_begun_anew(tmp_path, content):
    (tmp_path / "counter_0.db").write_bytes(content)
    work(tmp_path, 0, 5)
    assert value(tmp_path, 'portcullis_predictions_total{model="tiny",verdict="accept",version="1"}') == 5


def test_on_a_full_disk_a_new_series_is_lost_and_an_old_one_goes_on(tmp_path, monkeypatch):
    file = AllocatedFile(str(tmp_path / "counter_0.db"))
    file.write_value(series(-1), 1.0, 0.0)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("portcullis.telemetry.files.os.posix_fallocate", full)
    numbers = range(4000)
    for number in numbers:
        file.write_value(series(number), 1.0, 0.0)
        file.read_value(series(number))
    file.write_value(series(-1), 2.0, 0.0)
    assert file.read_value(series(-1)) == (2.0, 0.0)
    assert (tmp_path / "counter_0.db").stat().st_size == FILE_BYTES
    kept = {key for key, *_ in file.read_all_values()}
    file.close()
    assert {series(-1), series(0)} < kept
    assert series(3999) not in kept


def test_what_is_not_served_any_more_has_no_gauge(tmp_path):
    chosen = choose("-3.9", tiny.manifest())
    served = [ServedVersion("tiny", 2, "dismax", "cpu", "auto", chosen, tiny.LABELS, shadow_shift=0.25)]
    text = expose(tmp_path, ServedCollector(lambda: served)).decode()
    assert 'portcullis_gate_threshold{model="tiny",version="2"} -3.9' in text
    assert 'portcullis_model_info{asked="auto",method="dismax",model="tiny",provider="cpu",version="2"} 1.0' in text
    assert 'portcullis_shadow_score_shift{model="tiny",version="2"} 0.25' in text
    served.clear()
    assert "tiny" not in expose(tmp_path, ServedCollector(lambda: served)).decode()


def test_a_gate_by_class_shows_a_threshold_for_each_label_but_not_for_too_many(tmp_path):
    chosen = choose("accept95:by-class+right95", tiny.fitted_manifest())
    served = [ServedVersion("tiny", 2, "dismax", "cpu", "auto", chosen, tiny.LABELS)]
    text = expose(tmp_path, ServedCollector(lambda: served)).decode()
    for label, one in zip(tiny.LABELS, chosen.by_class, strict=True):
        sample = f'portcullis_gate_class_threshold{{label="{label}",model="tiny",version="2"}} {one.threshold}'
        assert sample in text
    assert "portcullis_gate_threshold{" not in text
    assert f'portcullis_gate_min_probability{{model="tiny",version="2"}} {chosen.min_probability}' in text
    assert f'expected_rejected_share{{model="tiny",version="2"}} {1 - chosen.right.coverage}' in text
    labels = tuple(map(str, range(101)))
    many = replace(chosen, by_class=chosen.by_class[:1] * 101)
    served[:] = [ServedVersion("tiny", 2, "dismax", "cpu", "auto", many, labels)]
    assert "portcullis_gate_class_threshold{" not in expose(tmp_path, ServedCollector(lambda: served)).decode()


def test_an_empty_window_has_evidence_but_no_ratios(tmp_path):
    text = expose(tmp_path, DriftCollector(lambda: [DriftReading("tiny", 1, empty_report(), None)])).decode()
    assert 'portcullis_drift_evidence_log10{model="tiny",version="1"} 0.0' in text
    assert 'portcullis_drift_psi{model="tiny"' not in text
    assert "portcullis_score_bucket" not in text


def test_scores_are_a_cumulative_histogram_with_sum_and_count_though_they_are_negative(tmp_path):
    scores = ScoreHistogram((-15.5, -14.25, 0.0), (2, 0, 3, 1), -71.5)
    text = expose(tmp_path, DriftCollector(lambda: [DriftReading("tiny", 1, empty_report(), scores)])).decode()
    assert [
        line for line in text.splitlines() if line.startswith(("portcullis_score_", "# TYPE portcullis_score "))
    ] == [
        "# TYPE portcullis_score histogram",
        'portcullis_score_bucket{le="-15.5",model="tiny",version="1"} 2.0',
        'portcullis_score_bucket{le="-14.25",model="tiny",version="1"} 2.0',
        'portcullis_score_bucket{le="0.0",model="tiny",version="1"} 5.0',
        'portcullis_score_bucket{le="+Inf",model="tiny",version="1"} 6.0',
        'portcullis_score_count{model="tiny",version="1"} 6.0',
        'portcullis_score_sum{model="tiny",version="1"} -71.5',
    ]


def test_every_instrument_has_the_prefix_and_a_text():
    registry = CollectorRegistry()
    Metrics(registry)
    families = list(registry.collect())
    assert families
    assert all(family.name.startswith("portcullis_") and family.documentation for family in families)


@pytest.mark.parametrize("name", ["gate_threshold", "model_info", "drift_psi", "score_quantile", "score"])
def test_no_gauge_is_declared_twice(name):
    registry = CollectorRegistry()
    Metrics(registry)
    assert f"portcullis_{name}" not in {family.name for family in registry.collect()}


@pytest.mark.parametrize("amount", [-1.0, 0.0, 0.0005, 0.0006, 0.1, 10.0, 11.0, math.inf])
def test_the_quick_observer_counts_as_the_library_does(amount):
    ours, library = Metrics(), Metrics()
    observer(ours.stage_seconds.labels("total"))(amount)
    library.stage_seconds.labels("total").observe(amount)
    assert _samples(ours) == _samples(library)


def test_an_amount_that_is_no_number_does_not_spoil_the_sum():
    metrics = Metrics()
    observe = observer(metrics.probability.labels("model", "1"))
    observe(math.nan)
    observe(0.5)
    assert ("portcullis_probability_sum", 0.5) in _samples(metrics)


def _samples(metrics):
    """Names, buckets and values; without the time at which a series was made."""
    return [
        (sample.name + sample.labels.get("le", ""), sample.value)
        for family in metrics.registry.collect()
        for sample in family.samples
        if family.type == "histogram" and not sample.name.endswith("_created")
    ]
