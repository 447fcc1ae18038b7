"""Both promises through a running service on a bundle of format 2: gates, reasons, parts, sets, drift, metrics."""

import math

import httpx
import numpy as np
import pytest

from portcullis.__main__ import main
from portcullis.bundle.files import write_bundle
from portcullis.bundle.gate import Row, decide
from portcullis.bundle.manifest import Manifest
from portcullis.bundle.promises import Promises
from portcullis.bundle.recalibration import right_points
from portcullis.client import Client, Refused
from tests import tiny
from tests.hammer import eventually
from tests.running import ADMIN_KEY, RunningService
from tests.service.pictures import RED, STRANGE, encode


def _with_hard_images() -> Manifest:
    """Every 25th calibration image is hard: answered wrongly with 0.6, its true class has 0.2."""
    manifest = tiny.fitted_manifest()
    rows = manifest.calibration_rows
    hard = {"probabilities": 0.6, "is_right": False, "true_probabilities": 0.2}
    columns = {name: list(getattr(rows, name)) for name in hard}
    for name, value in hard.items():
        columns[name][::25] = [value] * len(columns[name][::25])
    return manifest.model_copy(
        update={"calibration_rows": rows.model_copy(update={name: tuple(column) for name, column in columns.items()})}
    )


def _with_promises(manifest: Manifest) -> Manifest:
    measured = {"test_coverage": 0.93, "test_error": 0.031}
    points = tuple(point.model_copy(update=measured) for point in right_points(manifest))
    return manifest.model_copy(update={"promises": points})


MANIFEST = _with_promises(_with_hard_images())
PROMISES = Promises(MANIFEST)
IMAGES = tiny.familiar(60, seed=21)[0]
GREY = encode(np.full((tiny.SIZE, tiny.SIZE, 3), (120, 118, 119), np.uint8))
GATES = ("accept95", "accept90:by-class", "mmles:accept95", "right95", "accept80:by-class+right95", "mmles:-3.3", "0.5")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    models = tmp_path_factory.mktemp("fitted-models")
    write_bundle(models, MANIFEST, {"model.onnx": tiny.graph(format_version=2), "report.md": b"# tiny\n"})
    flags = ("--review-enabled", "--review-accept-sample", "0", "--gate", "accept95:by-class+right95")
    with RunningService(models, tmp_path_factory.mktemp("fitted"), *flags) as running:
        yield running


@pytest.fixture
def client(service):
    with Client(service.url, ADMIN_KEY) as client:
        yield client


@pytest.mark.parametrize("text", GATES)
def test_a_request_is_judged_by_the_gate_that_it_brings(client, text):
    chosen = PROMISES.gate(text)
    parts = tiny.parts_of(IMAGES)
    probabilities, scores = tiny.answers(IMAGES)[0], tiny.fitted_scores(parts)
    reasons = set()
    for image, row_parts, row, score in zip(IMAGES, parts, probabilities, scores, strict=True):
        answer = client.predict(encode(image), operating_point=text)
        best = int(row.argmax())
        expected = Row(best, float(row[best]), float(score), row_parts.tolist())
        assert answer.score == pytest.approx(chosen.score_of(expected), abs=1e-3)
        assert answer.mmles == pytest.approx(float(row_parts[0]), abs=1e-4)
        assert (answer.score_name, answer.min_probability) == (chosen.score, chosen.min_probability)
        least = chosen.threshold_for(best)
        assert answer.threshold == (least if least > -math.inf else None)
        assert answer.p_value == pytest.approx(chosen.p_value(expected), abs=0.01)
        served = Row(best, answer.probability, answer.score, [answer.mmles, float(row_parts[1])])
        if chosen.column is not None:
            served.parts[chosen.column] = answer.score
        assert (answer.verdict, answer.reason) == decide(served, chosen)
        assert (answer.parts, answer.set) == (None, None)
        reasons.add(answer.reason)
    assert reasons <= {None, "stranger"} if chosen.right is None else reasons <= {None, "stranger", "unsure"}


def test_grey_is_unsure_where_no_score_is_too_low_and_else_a_stranger(client):
    alone, joint = (client.predict(GREY, operating_point=text) for text in ("right95", "accept95+right95"))
    assert (alone.verdict, alone.reason, alone.threshold) == ("reject", "unsure", None)
    assert 0.5 < alone.min_probability < 0.7
    assert (joint.verdict, joint.reason) == ("reject", "stranger")


def test_parts_and_the_set_come_when_they_are_asked_for(client):
    answer = client.predict(encode(IMAGES[0]), explain=True, set=0.95, top_k=1)
    expected = dict(zip(tiny.PARTS, tiny.parts_of(IMAGES[:1])[0].tolist(), strict=True))
    assert answer.parts == pytest.approx(expected, abs=1e-4)
    assert (answer.set[0].label, len(answer.top)) == (answer.label, 1)
    wide = client.predict(GREY, set=0.97).set
    assert sorted(entry.label for entry in wide) == sorted(tiny.LABELS)  # nobody can tell
    assert [entry.probability for entry in wide] == sorted((entry.probability for entry in wide), reverse=True)


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("explain=yes", "invalid_parameter", "true or false"),
        ("set=95", "invalid_parameter", "such as 0.95"),
        ("set=0.99999", "unknown_operating_point", "at least 99999 calibration images"),
        ("operating_point=accept99.9:by-class", "unknown_operating_point", "red has 3"),
        ("operating_point=right999", "unknown_operating_point", "cannot be proven"),
        ("operating_point=energy:accept95", "unknown_operating_point", "there are: fitted, middle, mmles"),
    ],
)
def test_what_cannot_be_promised_is_refused(service, query, code, message):
    response = httpx.post(f"{service.url}/v1/predict?{query}", content=RED)
    assert (response.status_code, response.json()["error"]["code"]) == (422, code)
    assert message in response.json()["error"]["message"]


def test_a_gate_of_two_promises_may_be_written_in_a_query_as_it_stands(service):
    for written in ("accept95+right95", "accept95%2Bright95"):
        answer = httpx.post(f"{service.url}/v1/predict?operating_point={written}", content=RED).json()
        assert answer["operating_point"] == "accept95+right95"


def test_the_model_tells_its_points_its_thresholds_by_class_and_its_gate(client):
    [version] = client.models()[0].versions
    assert (version.score.name, version.score.parts) == ("fitted", tiny.PARTS)
    chosen = PROMISES.gate("accept95:by-class")
    assert list(version.class_thresholds["accept95"]) == list(tiny.LABELS)
    assert list(version.class_thresholds["accept95"].values()) == [one.threshold for one in chosen.by_class]
    gate, joint = version.gate, PROMISES.gate("accept95:by-class+right95")
    assert (gate.operating_point, gate.threshold) == ("accept95:by-class+right95", None)
    assert gate.class_thresholds == version.class_thresholds["accept95"]
    assert (gate.right, gate.min_probability) == (joint.right, joint.min_probability)
    assert gate.expected_rejected_share == 1 - joint.right.coverage


def test_a_gate_that_is_published_tells_what_came_of_it_on_test_images(client):
    assert client.gate("tiny").right.test_error is None  # by class: nobody measured that
    try:
        [published] = [one for one in MANIFEST.promises if (one.gate, one.name) == ("accept95", "right95")]
        assert client.set_gate("tiny", "accept95+right95").right == published
        assert published.test_error == 0.031
    finally:
        client.set_gate("tiny", "accept95:by-class+right95")


def test_a_shell_is_told_that_a_gate_by_class_keeps_its_promise_within_each(service, client, capsys):
    where = ["--url", service.url, "--key", ADMIN_KEY]
    try:
        assert main(["gate", "tiny", "--set", "accept95:by-class", *where]) == 0
        assert "rejects at most 5 % of familiar images of each answered class\n" in capsys.readouterr().out
    finally:
        assert main(["gate", "tiny", "--set", "accept95:by-class+right95", *where]) == 0
    assert "of each answered class" not in capsys.readouterr().out, "that share was counted over all"


def test_rejections_are_counted_and_kept_by_reason_with_the_set_first(service, client):
    before = _rejections(service)
    answer = client.predict(GREY, operating_point="right95", set=0.95)
    client.predict(STRANGE)
    after = _rejections(service)
    assert after == {"stranger": before["stranger"] + 1, "unsure": before["unsure"] + 1}
    assert eventually(lambda: client.drift("tiny").unsure_ratio)
    [item] = eventually(lambda: [item for item in client.review_items(state="open") if item.reason == "unsure"])
    assert item.candidates == [entry.label for entry in answer.set]
    assert (item.candidates[0], item.threshold) == (answer.label, None)


def test_drift_follows_the_score_that_gates(service, client):
    """Change the gate to MMLES and back: the window is of that score, and begins anew with it."""
    client.set_gate("tiny", "mmles:accept95")
    try:
        assert client.gate("tiny").score == "mmles"
        answer = client.predict(encode(IMAGES[0]))
        drift = eventually(lambda: _with_images(client.drift("tiny")))
        assert (drift.score, drift.num_images) == ("mmles", 1)
        assert drift.score_quantiles[0.5] == pytest.approx(answer.mmles, abs=1e-4)
        other = client.predict(encode(IMAGES[1]), operating_point="fitted:accept95")  # its own gate
        drift = eventually(lambda: found if (found := client.drift("tiny")).num_images == 2 else None)
        most = max(answer.mmles, other.mmles)
        assert max(drift.score_quantiles.values()) <= most + 1e-4 < other.score, "the score in force"
        reference = httpx.get(f"{service.url}/v1/models/tiny/reference").json()
        assert reference["score"] == "mmles"
    finally:
        client.set_gate("tiny", "accept95:by-class+right95")


def test_a_gate_that_cannot_be_promised_changes_nothing(client):
    with pytest.raises(Refused, match="needs at least 999 calibration images of every answered class"):
        client.set_gate("tiny", "accept99.9:by-class")
    assert client.gate("tiny").operating_point == "accept95:by-class+right95"


def _with_images(drift):
    return drift if drift.num_images and drift.score == "mmles" else None


def _rejections(service) -> dict[str, float]:
    counts = {}
    for line in httpx.get(f"{service.url}/metrics").text.splitlines():
        for reason in ("stranger", "unsure"):
            if line.startswith("portcullis_rejections_total") and f'reason="{reason}"' in line:
                counts[reason] = float(line.rpartition(" ")[2])
    return counts
