"""The Open Inference Protocol, spoken by NVIDIA's own client to a real service with two workers."""

import json

import httpx
import numpy as np
import pytest

from portcullis import __version__
from portcullis.bundle import gate
from tests import tiny
from tests.running import ADMIN_KEY, RunningService

triton = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is missing")

from tritonclient.utils import InferenceServerException  # noqa: E402

ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}
IMAGES, _ = tiny.familiar(6, seed=11)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    models = tmp_path_factory.mktemp("protocol")
    tiny.write(models, version=1)
    tiny.write(models, version=2, sharpness=1.5)
    flags = ("--max-batch-files", "8", "--log-requests-per-second", "0")
    with RunningService(models, tmp_path_factory.mktemp("runtime"), *flags) as service:
        yield service


@pytest.fixture
def client(service):
    with triton.InferenceServerClient(service.url.removeprefix("http://")) as client:
        yield client


@pytest.fixture
def plain(service):
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client


def tensor(images, is_binary=True):
    given = triton.InferInput("images", list(images.shape), "UINT8")
    given.set_data_from_numpy(images, binary_data=is_binary)
    return given


def outputs(is_binary, *names):
    return [triton.InferRequestedOutput(name, binary_data=is_binary) for name in names]


ALL = ("probabilities", "score", "mmles", "p_value", "verdict", "reason")


def test_server_and_model_are_live_and_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert client.is_model_ready("tiny", "2")
    assert not client.is_model_ready("tiny", "1")
    assert not client.is_model_ready("nobody")


def test_metadata_says_what_to_send_and_what_comes_back(client):
    server = client.get_server_metadata()
    assert (server["name"], server["version"]) == ("portcullis", __version__)
    assert "binary_tensor_data" in server["extensions"]
    model = client.get_model_metadata("tiny")
    assert (model["name"], model["versions"]) == ("tiny", ["2"])
    assert model["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, tiny.SIZE, tiny.SIZE, 3]}]
    assert {output["name"]: (output["datatype"], output["shape"]) for output in model["outputs"]} == {
        "probabilities": ("FP32", [-1, 3]),
        "score": ("FP32", [-1]),
        "p_value": ("FP32", [-1]),
        "mmles": ("FP32", [-1]),
        "verdict": ("BYTES", [-1]),
        "reason": ("BYTES", [-1]),
    }
    assert client.get_model_metadata("tiny", "2") == model


def test_binary_and_json_tensors_give_the_same_right_answers(client):
    binary = client.infer("tiny", [tensor(IMAGES)], request_id="abc")  # the client asks for binary outputs by default
    text = client.infer("tiny", [tensor(IMAGES, False)], outputs=outputs(False, *ALL), request_id="abc")
    mixed = client.infer("tiny", [tensor(IMAGES, False)], outputs=outputs(True, *ALL), model_version="2")
    probabilities, scores = tiny.answers(IMAGES, sharpness=1.5)
    calibration = tiny.manifest(sharpness=1.5).calibration
    for result in (binary, text, mixed):
        np.testing.assert_allclose(result.as_numpy("probabilities"), probabilities, atol=1e-5)
        np.testing.assert_allclose(result.as_numpy("score"), scores, atol=1e-5)
        expected = [gate.p_value(float(score), calibration) for score in result.as_numpy("score")]
        np.testing.assert_allclose(result.as_numpy("p_value"), expected, rtol=1e-6)
        np.testing.assert_array_equal(result.as_numpy("mmles"), result.as_numpy("score"))
        reasons = [word.decode() if isinstance(word, bytes) else word for word in result.as_numpy("reason")]
        verdicts = [word.decode() if isinstance(word, bytes) else word for word in result.as_numpy("verdict")]
        threshold = gate.operating_point("accept95", calibration).threshold
        assert verdicts == ["accept" if score >= threshold else "reject" for score in result.as_numpy("score")]
        assert reasons == ["" if verdict == "accept" else "stranger" for verdict in verdicts]
    for name in ("probabilities", "score", "p_value"):
        np.testing.assert_array_equal(binary.as_numpy(name), text.as_numpy(name))
    assert binary.get_response()["id"] == text.get_response()["id"] == "abc"
    assert binary.get_response()["model_version"] == "2"


def test_only_the_outputs_asked_for_come_back(client):
    result = client.infer("tiny", [tensor(IMAGES[:1])], outputs=outputs(True, "score"))
    assert result.as_numpy("score").shape == (1,)
    assert result.as_numpy("probabilities") is None


def test_its_images_are_counted_and_go_into_the_drift_window(client, plain):
    def answered():
        lines = plain.get("/metrics").text.splitlines()
        prefix = 'portcullis_predictions_total{model="tiny"'
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(prefix))

    before = answered()
    client.infer("tiny", [tensor(IMAGES)])
    assert answered() == before + len(IMAGES)
    assert 'route="/v2/models/{name}/infer",status="200"' in plain.get("/metrics").text


def test_the_index_lists_what_is_served_and_what_lies_there(client, plain):
    index = {(entry["name"], entry["version"]): entry for entry in client.get_model_repository_index()}
    assert index["tiny", "2"]["state"] == "READY"
    assert (index["tiny", "1"]["state"], index["tiny", "1"]["reason"]) == ("UNAVAILABLE", "not loaded")
    ready = plain.post("/v2/repository/index", json={"ready": True}).json()
    assert [(entry["name"], entry["version"]) for entry in ready] == [("tiny", "2")]


def test_a_model_is_unloaded_and_loaded_again(client):
    with pytest.raises(InferenceServerException, match="admin key"):
        client.unload_model("tiny")
    client.unload_model("tiny", headers=ADMIN)
    assert not client.is_model_ready("tiny")
    with pytest.raises(InferenceServerException, match="no model 'tiny' is served"):
        client.infer("tiny", [tensor(IMAGES)])
    client.load_model("tiny", headers=ADMIN)
    assert client.is_model_ready("tiny")
    assert client.infer("tiny", [tensor(IMAGES)]).as_numpy("score").shape == (6,)
    client.load_model("tiny", headers=ADMIN)  # it is there already
    with pytest.raises(InferenceServerException, match="there are: tiny"):
        client.load_model("nobody", headers=ADMIN)
    with pytest.raises(InferenceServerException, match="takes no parameters"):
        client.load_model("tiny", config="{}", headers=ADMIN)


def test_wrong_calls_are_refused_in_the_protocols_shape(client):
    wrong = triton.InferInput("pixels", [1, 8, 8, 3], "UINT8")
    wrong.set_data_from_numpy(IMAGES[:1])
    with pytest.raises(InferenceServerException, match="expected input 'images' of UINT8, got 'pixels'") as caught:
        client.infer("tiny", [wrong])
    assert caught.value.status() == "400"
    with pytest.raises(InferenceServerException, match=r"expected shape \[N, 8, 8, 3\]"):
        client.infer("tiny", [tensor(np.zeros((1, 4, 4, 3), np.uint8))])
    with pytest.raises(InferenceServerException, match="unknown output 'logits'; there are: probabilities"):
        client.infer("tiny", [tensor(IMAGES)], outputs=outputs(True, "logits"))
    with pytest.raises(InferenceServerException, match="at most 8 images") as caught:
        client.infer("tiny", [tensor(np.zeros((9, 8, 8, 3), np.uint8))])
    assert caught.value.status() == "413"
    with pytest.raises(InferenceServerException, match="not served in version 7; there are: 2") as caught:
        client.infer("tiny", [tensor(IMAGES)], model_version="7")
    assert caught.value.status() == "404"
    with pytest.raises(InferenceServerException, match="without content-encoding"):
        client.infer("tiny", [tensor(IMAGES)], request_compression_algorithm="gzip")


IMAGE = {"name": "images", "datatype": "UINT8", "shape": [1, 8, 8, 3]}


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (b"{", {}, "not JSON"),
        (b"[]", {}, "JSON object"),
        (b"{}", {}, "exactly one input"),
        ({"inputs": [IMAGE, IMAGE]}, {}, "exactly one input"),
        ({"inputs": [IMAGE]}, {}, "192 whole numbers"),
        ({"inputs": [IMAGE | {"data": [0] * 191}]}, {}, "192 whole numbers"),
        ({"inputs": [IMAGE | {"data": [0.5] * 192}]}, {}, "192 whole numbers"),
        ({"inputs": [IMAGE | {"data": [[1, 2], [3]]}]}, {}, "192 whole numbers"),
        ({"inputs": [IMAGE | {"data": [256] * 192}]}, {}, "0 to 255"),
        ({"inputs": [IMAGE | {"data": [-1] * 192}]}, {}, "0 to 255"),
        ({"inputs": [IMAGE | {"shape": [True, 8, 8, 3]}]}, {}, "expected shape"),
        ({"inputs": [IMAGE | {"shape": [0, 8, 8, 3]}]}, {}, "expected shape"),
        ({"inputs": [IMAGE | {"shape": "x"}]}, {}, "expected shape"),
        ({"inputs": [IMAGE | {"parameters": []}]}, {}, "parameters"),
        ({"inputs": [IMAGE | {"parameters": {"binary_data_size": 192}}]}, {}, "got 0"),
        ({"inputs": [IMAGE | {"parameters": {"shared_memory_region": "x"}}]}, {}, "shared memory"),
        ({"inputs": [IMAGE | {"data": [0] * 192}], "id": 7}, {}, "id"),
        ({"inputs": [IMAGE | {"data": [0] * 192}], "outputs": [{"name": "score"}, {"name": "score"}]}, {}, "twice"),
        ({"inputs": [IMAGE | {"data": [0] * 192}], "outputs": "score"}, {}, "list of objects"),
        (
            {
                "inputs": [IMAGE | {"data": [0] * 192}],
                "outputs": [{"name": "score", "parameters": {"classification": 1}}],
            },
            {},
            "classification",
        ),
        (b"{}", {"inference-header-content-length": "-3"}, "Inference-Header-Content-Length"),
        (b"{}", {"inference-header-content-length": "99"}, "Inference-Header-Content-Length"),
        (b"{}xx", {"inference-header-content-length": "2"}, "exactly one input"),
    ],
)
def test_a_malformed_request_is_a_400_that_says_what_was_expected(plain, body, headers, message):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = plain.post("/v2/models/tiny/infer", content=content, headers=headers)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert message in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/nowhere", 404),
        ("GET", "/v2/models/tiny/infer", 405),
        ("GET", "/v2/models/tiny/versions/x", 400),
        ("POST", "/v2/models/tiny/versions/x/infer", 400),
    ],
)
def test_even_a_wrong_path_is_refused_in_the_protocols_shape(plain, method, path, status):
    answer = plain.request(method, path)
    assert answer.status_code == status
    assert isinstance(answer.json()["error"], str)


def test_nested_json_data_is_understood(plain):
    body = {"inputs": [IMAGE | {"data": IMAGES[:1].tolist()}]}
    answer = plain.post("/v2/models/tiny/infer", json=body).json()
    score = next(output for output in answer["outputs"] if output["name"] == "score")
    assert score["data"][0] == pytest.approx(float(tiny.answers(IMAGES[:1], 1.5)[1][0]), abs=1e-5)
