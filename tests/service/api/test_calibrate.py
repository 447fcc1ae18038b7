"""A gate calibrated where it runs, over HTTP: on the review queue's labels and on images that come along."""

import httpx
import numpy as np
import pytest

from portcullis.__main__ import main
from portcullis.bundle.files import load_bundle
from portcullis.bundle.gate import operating_point, summarise
from portcullis.client import Client, Refused
from tests import tiny
from tests.hammer import eventually
from tests.running import ADMIN_KEY, RunningService
from tests.sabotage import audit_of
from tests.service.pictures import BROKEN, encode

NUM_IMAGES = 60
IMAGES, LABELS = tiny.familiar(NUM_IMAGES, seed=77)
FILES = [
    ("files", (f"{tiny.LABELS[label]}/{number}.png", encode(image)))
    for number, (image, label) in enumerate(zip(IMAGES, LABELS, strict=True))
]
HEADERS = {"authorization": f"Bearer {ADMIN_KEY}"}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Keeps all that it is asked, and would adopt whatever appears beside the version that it serves."""
    models = tmp_path_factory.mktemp("calibrated-models")
    tiny.write_fitted(models, "tiny", version=1)
    tiny.write_fitted(models, "pinned", version=1)
    tiny.write_fitted(models, "quiet", version=1)
    flags = ["--review-enabled", "--review-accept-sample", "1", "--watch-models-seconds", "0.2"]
    with RunningService(models, tmp_path_factory.mktemp("calibrated"), *flags) as running:
        running.models = models
        yield running


@pytest.fixture(scope="module")
def client(service):
    with httpx.Client(base_url=service.url, headers=HEADERS, timeout=60) as client:
        yield client


def audited(service, action):
    return [line for line in audit_of(service.runtime) if line["action"] == action]


def label_everything(client):
    """Show the service all images, and say what they are once they are kept; the strangest is labelled as unknown."""
    for image in IMAGES:
        client.post("/v1/predict?model=tiny", content=encode(image)).raise_for_status()
    eventually(lambda: client.get("/v1/review?model=tiny").json()["num_items"] == NUM_IMAGES)
    items = client.get("/v1/review?model=tiny&limit=500").json()["items"]
    assert all(item["is_sampled"] for item in items)
    truth = {encode(image): tiny.LABELS[label] for image, label in zip(IMAGES, LABELS, strict=True)}
    for number, item in enumerate(items):
        label = truth[client.get(f"/v1/review/{item['id']}/image").content] if number else "lorry"
        client.put(f"/v1/review/{item['id']}", json={"label": label}).raise_for_status()
    return items


def test_labels_of_the_review_queue_make_the_next_version_which_answers_only_when_asked_to(service, client, capsys):
    refused = client.post("/v1/models/tiny/calibrate")
    assert refused.status_code == 409
    assert "takes 19 labelled images that were drawn by chance" in refused.json()["error"]["message"]
    items = label_everything(client)
    client.put(f"/v1/review/{items[-1]['id']}", json={"state": "open"}).raise_for_status()
    made = client.post("/v1/models/tiny/calibrate").raise_for_status().json()
    assert (made["from_version"], made["version"], made["num_images"]) == (1, 2, NUM_IMAGES - 2)
    assert made["left_out"] == {"'lorry' is none of the bundle's labels": 1}
    assert made["num_unlabelled"] == 1
    kept = {promise["gate"]: promise["is_kept"] for promise in made["promises"]}
    assert kept["accept95"] and not kept["accept99"] and not kept["right99"]
    served = client.get("/v1/models/tiny").json()
    assert (served["default_version"], served["is_pinned"]) == (1, True)
    assert client.post("/v1/models/rescan").json()["adopted"] == []
    [line] = audited(service, "calibrate")
    assert (line["key"], line["model"], line["version"], line["images"]) == ("tester", "tiny", 2, NUM_IMAGES - 2)
    manifest = load_bundle(service.models / "tiny" / "2").manifest
    assert "58 labelled images of the review queue of tiny" in manifest.provenance.data

    bundle = str(service.models / "tiny" / "1")
    assert main(["calibrate", bundle, "--review", "--url", service.url, "--key", ADMIN_KEY]) == 0
    output = capsys.readouterr().out
    assert "tiny/3 is written, calibrated on 58 images" in output
    assert "1 images that were drawn are not labelled yet" in output
    by_command = load_bundle(service.models / "tiny" / "3").manifest
    assert by_command.calibration.scores == pytest.approx(manifest.calibration.scores, abs=1e-4)

    with Client(service.url, ADMIN_KEY) as caller:
        made = caller.calibrate("tiny", activate=True)
        assert (made.version, made.is_default, made.behind) == (4, True, [])
        assert caller.model("tiny").default_version == 4
        with pytest.raises(Refused, match="no model 'nobody' is served"):
            caller.calibrate("nobody")


def test_images_that_come_along_set_the_thresholds(service, client):
    files = [*FILES, ("files", ("red/broken.png", BROKEN))]
    made = client.post("/v1/models/pinned/calibrate?labels=true", files=files).raise_for_status().json()
    assert (made["num_images"], made["num_unlabelled"]) == (NUM_IMAGES, None)
    assert [reason.startswith("red/broken.png") for reason in made["left_out"]] == [True]
    manifest = load_bundle(service.models / "pinned" / str(made["version"])).manifest
    calibration = summarise(tiny.fitted_scores(tiny.parts_of(IMAGES)).tolist())
    found = {point.name: point.threshold for point in manifest.operating_points}
    assert found["accept95"] == pytest.approx(operating_point("accept95", calibration).threshold, abs=1e-3)
    rows = tiny.answers(IMAGES)[0].argmax(axis=1) == LABELS
    assert sum(manifest.calibration_rows.is_right) == np.count_nonzero(rows)
    unlabelled = client.post("/v1/models/pinned/calibrate", files=FILES).raise_for_status().json()
    assert "needs labelled calibration images" in next(
        promise["text"] for promise in unlabelled["promises"] if promise["gate"] == "right99"
    )


@pytest.mark.parametrize(
    ("query", "files", "status", "reason"),
    [
        ("", FILES[:18], 422, "18 familiar images cannot promise accept95, which takes 19"),
        ("?labels=true", [("files", ("flat.png", FILES[0][1][1]))], 422, "a file is called <label>/<name>"),
        ("?labels=true", None, 422, "labels=true goes with a form of images"),
        ("?activated=true", FILES, 422, "unknown parameter 'activated'"),
        ("?version=9", FILES, 404, "not served in version 9"),
        ("", [("files", ("broken.png", BROKEN))], 422, "found no familiar image in an upload"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(service, client, query, files, status, reason):
    refused = client.post(f"/v1/models/quiet/calibrate{query}", files=files)
    assert (refused.status_code, reason in refused.json()["error"]["message"]) == (status, True), refused.text
    assert refused.json()["error"]["code"] in ("invalid_parameter", "unknown_version"), "no bundle is at fault"
    assert [path.name for path in (service.models / "quiet").iterdir()] == ["1"]
    assert not client.get("/v1/models/quiet").json()["is_pinned"]
    assert all(line["model"] != "quiet" for line in audited(service, "calibrate"))


def test_a_version_that_cannot_keep_the_gate_in_force_is_not_made_to_answer(service, client):
    client.put("/v1/models/quiet/gate", json={"operating_point": "accept99"}).raise_for_status()
    try:
        refused = client.post("/v1/models/quiet/calibrate?activate=true", files=FILES)
        assert refused.status_code == 422
        assert "cannot keep the gate in force: accept99 needs at least 99" in refused.json()["error"]["message"]
        assert [path.name for path in (service.models / "quiet").iterdir()] == ["1"]
    finally:
        client.put("/v1/models/quiet/gate", json={"operating_point": "accept95"}).raise_for_status()


def test_it_needs_an_admin_key(service):
    assert httpx.post(f"{service.url}/v1/models/tiny/calibrate").status_code == 401
