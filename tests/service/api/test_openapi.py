"""The OpenAPI document against the service: what it says of the predict routes, and what they then do."""

import json

import httpx
import pytest

from portcullis.schemas.answers import Answer, BatchAnswer, ErrorAnswer
from tests.service.pictures import RED, STRANGE


@pytest.fixture(scope="module")
def client(running_service):
    with httpx.Client(base_url=running_service.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def document(client):
    return client.get("/openapi.json").json()


def schemas_of(document, path, status):
    """Names of the schemas that a predict route may answer with."""
    schema = document["paths"][path]["post"]["responses"][status]["content"]["application/json"]["schema"]
    return {option["$ref"].rpartition("/")[2] for option in schema.get("anyOf", [schema])}


def examples_of(document, path, status):
    content = document["paths"][path]["post"]["responses"][status]["content"]["application/json"]
    return {name: example["value"] for name, example in content["examples"].items()}


def test_every_operation_is_described_for_whoever_calls_it(document):
    text = json.dumps(document)
    assert "ASGI" not in text and "callable" not in text
    for path in ("/v1/predict", "/v1/predict/batch"):
        assert len(document["paths"][path]["post"]["description"]) > 200
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path


def test_422_is_an_answer_or_an_error_and_the_service_gives_both(client, document):
    assert schemas_of(document, "/v1/predict", "422") == {"Answer", "ErrorAnswer"}
    rejected = client.post("/v1/predict?on_reject=422", content=STRANGE)
    wrong = client.post("/v1/predict?top_k=0", content=RED)
    assert (rejected.status_code, wrong.status_code) == (422, 422)
    assert Answer.model_validate_json(rejected.content, strict=True).verdict == "reject"
    assert ErrorAnswer.model_validate_json(wrong.content, strict=True).error.code == "invalid_parameter"
    examples = examples_of(document, "/v1/predict", "422")
    assert Answer.model_validate(examples.pop("rejected"), strict=True).verdict == "reject"
    assert all(ErrorAnswer.model_validate(example, strict=True) for example in examples.values()) and examples


def test_a_batch_has_no_status_for_one_rejected_file_and_refuses_to_be_asked_for_one(client, document):
    parameters = document["paths"]["/v1/predict/batch"]["post"]["parameters"]
    assert {parameter["name"] for parameter in parameters} == {
        "model", "version", "top_k", "operating_point", "threshold", "explain", "set",
    }  # fmt: skip
    assert schemas_of(document, "/v1/predict/batch", "422") == {"ErrorAnswer"}
    files = [("f", ("red", RED)), ("f", ("strange", STRANGE))]
    refused = client.post("/v1/predict/batch?on_reject=422", files=files)
    error = ErrorAnswer.model_validate_json(refused.content).error
    assert (refused.status_code, error.code) == (422, "invalid_parameter")
    assert "on_reject" in error.message and "operating_point" in error.message
    answered = client.post("/v1/predict/batch?operating_point=accept1&top_k=1", files=files)
    results = BatchAnswer.model_validate_json(answered.content).results
    assert [entry.answer.verdict for entry in results] == ["reject", "reject"]


def test_every_route_that_reads_a_body_may_refuse_a_large_one(document):
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if "requestBody" in operation:
                assert "413" in operation["responses"], (method, path)
