"""The API as a client meets it: a real service with two workers."""

import base64
import json
import subprocess

import httpx
import numpy as np
import pytest

from portcullis.bundle import gate
from portcullis.schemas.answers import (
    Answer,
    BatchAnswer,
    ErrorAnswer,
    GateInfo,
    ModelList,
)
from tests import tiny
from tests.running import ADMIN_KEY
from tests.service.pictures import BROKEN, RED, STRANGE, encode


@pytest.fixture(scope="module")
def client(running_service):
    with httpx.Client(base_url=running_service.url, timeout=30) as client:
        yield client


def refused(response, status, code):
    error = ErrorAnswer.model_validate(response.json()).error
    assert (response.status_code, error.code) == (status, code), response.text
    assert error.request_id == response.headers["x-request-id"]
    return error.message


def test_a_familiar_image_is_accepted_with_every_field_of_the_answer(client):
    response = client.post("/v1/predict", content=RED, headers={"content-type": "image/png"})
    answer = Answer.model_validate(response.json(), strict=True)
    pixels = np.full((1, tiny.SIZE, tiny.SIZE, 3), (230, 20, 20), np.uint8)
    probabilities, scores = tiny.answers(pixels)
    point = gate.operating_point("accept95", tiny.manifest().calibration)
    assert response.status_code == 200
    assert (answer.model, answer.version, answer.label, answer.class_index) == ("tiny", 1, "red", 0)
    assert answer.probability == pytest.approx(float(probabilities[0, 0]), abs=1e-5)
    assert answer.score == pytest.approx(float(scores[0]), abs=1e-5)
    assert answer.p_value == gate.p_value(answer.score, tiny.manifest().calibration)
    assert (answer.threshold, answer.operating_point, answer.verdict) == (point.threshold, "accept95", "accept")
    assert answer.top[0].label == "red"
    assert sum(entry.probability for entry in answer.top) == pytest.approx(1)


def test_a_strange_image_is_rejected_with_200(client):
    answer = client.post("/v1/predict", content=STRANGE).json()
    assert answer["verdict"] == "reject"
    assert answer["p_value"] <= 0.05


def test_all_three_body_kinds_give_the_same_answer(client):
    encoded = base64.b64encode(RED).decode()
    answers = [
        client.post("/v1/predict", content=RED, headers={"content-type": "application/octet-stream"}),
        client.post("/v1/predict", files={"file": ("red.png", RED, "image/png")}),
        client.post("/v1/predict", json={"image": encoded}),
        client.post("/v1/predict", json={"image": f"data:image/png;base64,{encoded}"}),
    ]
    bodies = [{k: v for k, v in answer.json().items() if k != "request_id"} for answer in answers]
    assert bodies == bodies[:1] * 4


def test_curl_as_the_readme_calls_it_works(running_service, tmp_path):
    (tmp_path / "red.png").write_bytes(RED)
    command = ["curl", "-s", "--data-binary", f"@{tmp_path}/red.png", f"{running_service.url}/v1/predict"]
    assert json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["label"] == "red"


def test_the_server_says_how_long_each_stage_took(client):
    timing = client.post("/v1/predict", content=RED).headers["server-timing"]
    stages = dict(part.split(";dur=") for part in timing.split(", "))
    assert set(stages) == {"decode", "queue", "inference"}
    assert all(0 <= float(duration) < 10_000 for duration in stages.values())


def test_a_request_id_is_echoed_or_made(client):
    given = client.post("/v1/predict", content=RED, headers={"x-request-id": "order-66"})
    assert given.headers["x-request-id"] == given.json()["request_id"] == "order-66"
    made = {client.get("/healthz").headers["x-request-id"] for _ in range(5)}
    assert len(made) == 5
    evil = client.get("/healthz", headers={"x-request-id": 'x" <script>'})
    assert "script" not in evil.headers["x-request-id"]


def test_a_batch_answers_each_file_in_order_and_one_bad_file_fails_alone(client):
    files = [("f", ("a.png", RED)), ("f", ("b.png", BROKEN)), ("g", ("c.png", STRANGE))]
    response = client.post("/v1/predict/batch", files=files)
    results = BatchAnswer.model_validate(response.json()).results
    assert [result.file for result in results] == ["a.png", "b.png", "c.png"]
    assert [result.answer.verdict if result.answer else None for result in results] == ["accept", None, "reject"]
    assert results[1].error.code == "bad_image"


def test_top_k_and_on_reject_are_heeded(client):
    assert len(client.post("/v1/predict?top_k=2", content=RED).json()["top"]) == 2
    rejected = client.post("/v1/predict?on_reject=422", content=STRANGE)
    assert rejected.status_code == 422
    assert rejected.json()["verdict"] == "reject"
    assert client.post("/v1/predict?on_reject=422", content=RED).status_code == 200


def test_a_request_may_bring_its_own_gate(client):
    loose = client.post("/v1/predict?threshold=-100", content=STRANGE).json()
    assert (loose["verdict"], loose["threshold"], loose["operating_point"]) == ("accept", -100, None)
    own = client.post("/v1/predict?operating_point=accept1", content=RED).json()
    assert own["operating_point"] == "accept1"
    assert own["threshold"] == gate.operating_point("accept1", tiny.manifest().calibration).threshold


@pytest.mark.parametrize(
    ("query", "status", "code", "named"),
    [
        ("model=nobody", 404, "unknown_model", "there are: tiny"),
        ("version=9", 404, "unknown_version", "there are: 1"),
        ("version=one", 422, "invalid_parameter", "whole number"),
        ("operating_point=accept99.95", 422, "unknown_operating_point", "accept90, accept95, accept99"),
        ("operating_point=strict", 422, "unknown_operating_point", "accept90, accept95, accept99"),
        ("threshold=nan", 422, "invalid_parameter", "finite"),
        ("threshold=mmles:-3", 422, "invalid_parameter", "expected a threshold that is a finite score"),
        ("threshold=1&operating_point=accept95", 422, "invalid_parameter", "not both"),
        ("top_k=0", 422, "invalid_parameter", "from 1 to 3"),
        ("top_k=4", 422, "invalid_parameter", "from 1 to 3"),
        ("on_reject=500", 422, "invalid_parameter", "200, 422"),
        ("treshold=1", 422, "invalid_parameter", "threshold"),
        ("top_k=1&top_k=2", 422, "invalid_parameter", "twice"),
        ("top_k=%ff", 422, "invalid_parameter", "top_k"),
    ],
)
def test_a_wrong_parameter_is_refused_naming_what_exists(client, query, status, code, named):
    assert named in refused(client.post(f"/v1/predict?{query}", content=RED), status, code)


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"", "image/png", 400, "bad_image"),
        (b"hello", "image/png", 400, "bad_image"),
        (BROKEN, "image/png", 400, "bad_image"),
        (RED, "text/html", 415, "unsupported_media_type"),
        (b"{", "application/json", 400, "bad_request"),
        (b'{"image": 3}', "application/json", 400, "bad_request"),
        (b'{"image": "%%%"}', "application/json", 400, "bad_request"),
        (b'{"image": "", "more": 1}', "application/json", 400, "bad_request"),
        (b"nothing", "multipart/form-data", 400, "bad_request"),
        (b"nothing", "multipart/form-data; boundary=x", 400, "bad_request"),
        (b"--x\r\n\r\n\r\n--x--\r\n", "multipart/form-data; boundary=x", 400, "bad_request"),
    ],
)
def test_a_body_that_is_no_image_is_refused(client, body, kind, status, code):
    refused(client.post("/v1/predict", content=body, headers={"content-type": kind}), status, code)


def test_two_files_where_one_is_expected_are_refused(client):
    refused(client.post("/v1/predict", files=[("a", ("a", RED)), ("b", ("b", RED))]), 413, "payload_too_large")


def test_what_is_served_is_shown_with_what_was_asked_for_and_what_runs(client):
    (model,) = ModelList.model_validate(client.get("/v1/models").json()).models
    (version,) = model.versions
    assert (model.name, model.is_default, version.version) == ("tiny", True, 1)
    assert (version.providers_asked, version.providers) == (["auto"], ["cpu"])
    assert version.provider_refusals == []
    assert 0 <= version.device_shift.score < 1e-5
    assert version.device_shift.rejected_share <= 0.001
    moved = version.device_shift.by_gate
    assert moved == {point.name: pytest.approx(0, abs=1e-3) for point in version.operating_points}
    assert version.figures.outside["grey"].auroc == 0.99
    assert client.get("/v1/models/tiny").json() == client.get("/v1/models").json()["models"][0]
    refused(client.get("/v1/models/nobody"), 404, "unknown_model")


def test_the_gate_in_force_is_shown(client):
    info = GateInfo.model_validate(client.get("/v1/models/tiny/gate").json())
    assert (info.operating_point, info.expected_rejected_share) == ("accept95", 0.05)


@pytest.mark.parametrize(
    ("key", "status", "code"),
    [(None, 401, "unauthorized"), ("wrong-secret", 403, "forbidden"), (ADMIN_KEY, 422, "invalid_parameter")],
)
def test_the_gate_is_changed_only_with_an_admin_key_and_a_sensible_body(client, key, status, code):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    response = client.put("/v1/models/tiny/gate", json={}, headers=headers)
    refused(response, status, code)
    assert ("www-authenticate" in response.headers) == (status == 401)


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", None])
def test_json_that_is_not_called_so_is_refused_by_saying_what_was_expected(client, kind):
    """What `curl -d` sends unless told otherwise."""
    headers = {"authorization": f"Bearer {ADMIN_KEY}"} | ({"content-type": kind} if kind else {})
    response = client.put("/v1/models/tiny/gate", content=b'{"operating_point": "accept90"}', headers=headers)
    refused(response, 400, "bad_request")
    assert "expected a body of application/json" in response.json()["error"]["message"]


def test_an_unknown_route_and_a_wrong_method_have_the_same_shape(client):
    refused(client.get("/v1/nothing"), 404, "not_found")
    refused(client.get("/v1/predict"), 405, "method_not_allowed")
    refused(client.put("/v1/models", json={}), 405, "method_not_allowed")


def test_every_answer_carries_security_headers_and_cors_is_off(client):
    response = client.get("/healthz", headers={"origin": "https://example.com"})
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in response.headers


def test_probes_answer(client):
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready", "provider": "cpu", "is_fallback": False}


def test_the_documentation_page_needs_no_outside_host(client):
    page = client.get("/docs")
    assert "https://" not in page.text
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert asset in page.text
        assert client.get(f"/docs/assets/{asset}").status_code == 200


def test_the_openapi_document_lists_every_route_with_an_example_for_every_error(client):
    document = client.get("/openapi.json").json()
    assert {
        "/v1/predict",
        "/v1/predict/batch",
        "/v1/models",
        "/v1/models/{name}/gate",
        "/healthz",
        "/readyz",
        "/metrics",
    } <= set(document["paths"])
    predict = document["paths"]["/v1/predict"]["post"]
    assert set(predict["requestBody"]["content"]) == {
        "image/*",
        "application/octet-stream",
        "multipart/form-data",
        "application/json",
    }
    assert {parameter["name"] for parameter in predict["parameters"]} == {
        "model", "version", "top_k", "operating_point", "threshold", "on_reject", "explain", "set",
    }  # fmt: skip
    assert set(predict["responses"]) >= {"200", "400", "401", "403", "404", "413", "415", "422", "503", "504"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and not path.startswith("/v2"):
                    assert answer["content"]["application/json"]["examples"], (path, method, status)


def test_large_photographs_are_decoded_apart_from_the_engine(client):
    pixels = np.zeros((900, 900, 3), np.uint8)
    pixels[...] = (230, 20, 20)
    pixels[::2, ::2] += np.random.default_rng(0).integers(0, 20, (450, 450, 3), dtype=np.uint8)
    photograph = encode(pixels)
    assert len(photograph) > 65536
    assert client.post("/v1/predict", content=photograph).json()["label"] == "red"
