"""What is told of an answer: the score in force among all calibration images, whatever gate the request brought."""

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from portcullis.answering.observer import Observer
from portcullis.answering.prediction import FullRow, Prediction, top
from portcullis.bundle.gate import decide, p_value
from portcullis.bundle.promises import Promises
from portcullis.drift.rings import STRANGER
from portcullis.telemetry.instruments import Metrics
from tests import tiny

MANIFEST = tiny.fitted_manifest()
PROMISES = Promises(MANIFEST)
CALIBRATION = {name: PROMISES.calibration(name) for name in ("fitted", "mmles")}
FITTED, MMLES = -1.5, -9.0
ROW = FullRow(1, 0.9, FITTED, [MMLES, 0.0], np.array([0.05, 0.9, 0.05], np.float32))


class Ring:
    def append(self, key, time, score, p_value, class_index, outcome):
        self.kept = (score, p_value, class_index, outcome)


def answered(text):
    gate = PROMISES.gate(text)
    verdict, reason = decide(ROW, gate)
    return Prediction(
        ROW, top(ROW, 1), gate.score_of(ROW), gate.p_value(ROW), gate.threshold_for(1), gate, verdict, reason,
        decode_wait_seconds=0, decode_seconds=0, queue_seconds=0, inference_seconds=0,
    )  # fmt: skip


@pytest.mark.parametrize("in_force", ["accept95", "accept95:by-class", "right95"])
@pytest.mark.parametrize("asked", ["accept95", "accept95:by-class", "mmles:accept95", "mmles:accept95:by-class"])
def test_drift_and_metrics_are_of_the_score_in_force_over_all_classes(in_force, asked):
    for score, prefix, value in (("fitted", "", FITTED), ("mmles", "mmles:", MMLES)):
        ring, metrics = Ring(), Metrics(CollectorRegistry())
        observer = Observer(MANIFEST, metrics, ring)
        observer.follow(PROMISES.gate(prefix + in_force))
        prediction = answered(asked)
        observer.prediction(prediction, 0.0)
        expected = p_value(value, CALIBRATION[score])
        assert ring.kept[:3] == (value, expected, 1)
        assert (ring.kept[3] == STRANGER) == (prediction.reason == "stranger"), "the verdict is the request's own"
        labels = {"model": "tiny", "version": "1"}
        assert metrics.registry.get_sample_value("portcullis_score_p_value_sum", labels) == expected


def test_the_answers_here_tell_the_scores_and_the_ways_to_count_apart():
    assert answered("mmles:accept95").p_value < 0.01 < 0.5 < answered("accept95").p_value < 1
    assert answered("accept95:by-class").p_value != answered("accept95").p_value
