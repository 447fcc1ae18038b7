"""Property-based fuzz of the running service: the OpenAPI document by schemathesis, the decoder by damaged pictures."""

import io

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.running import RunningService
from tests.service.bundle.test_preprocess import SEEDS, png_that_claims
from tests.service.pictures import RED

pytestmark = pytest.mark.slow
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
QUIET = settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=False
)


@pytest.fixture(scope="module")
def service(models, tmp_path_factory):
    """Without an admin key nothing can be changed by a fuzzer that guesses."""
    flags = ["--max-pixels", "2000000", "--log-requests-per-second", "0"]
    with RunningService(models, tmp_path_factory.mktemp("runtime"), *flags) as service:
        workers = set(service.workers())
        yield service
        assert set(service.workers()) == workers, "a worker died"


def operations(schema):
    return [result.ok() for result in schema.get_all_operations()]


def test_every_operation_answers_as_the_openapi_document_says(service):
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    names = []
    for operation in operations(schema):

        @given(case=operation.as_strategy())
        @QUIET
        def check(case):
            response = case.call(base_url=service.url, timeout=30)
            if response.status_code != 503:  # refusing while flooded is an answer too
                case.validate_response(response, checks=CHECKS)

        check()
        names.append(operation.label)
    assert "POST /v1/predict" in names
    assert len(names) >= 8


CASES = {
    "cmyk": ("JPEG", Image.new("CMYK", (20, 20), (10, 200, 30, 0))),
    "sixteen bits": ("PNG", Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20) * 100)),
    "one bit": ("PNG", Image.new("1", (20, 20), 1)),
    "grey with alpha": ("PNG", Image.new("LA", (20, 20), (90, 40))),
    "palette with alpha": ("PNG", Image.new("RGBA", (20, 20), (1, 2, 3, 4)).quantize(4)),
    "one pixel": ("PNG", Image.new("RGB", (1, 1), "red")),
    "a sliver": ("PNG", Image.new("RGB", (5000, 1), "red")),
    "large": ("JPEG", Image.new("RGB", (1200, 1200), "red")),
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_picture_is_answered(service, name):
    format, image = CASES[name]
    stream = io.BytesIO()
    image.save(stream, format)
    assert httpx.post(f"{service.url}/v1/predict", content=stream.getvalue(), timeout=30).status_code == 200


def test_damaged_pictures_never_make_a_5xx(service):
    with httpx.Client(base_url=service.url, timeout=30) as client:

        @settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(
            seed=st.sampled_from([*SEEDS, RED, png_that_claims(60_000, 60_000), png_that_claims(0, 5)]),
            flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=10),
            cut=st.integers(0, 3000),
        )
        def check(seed, flips, cut):
            payload = bytearray(seed)
            for position, value in flips:
                payload[position % len(payload)] = value
            response = client.post("/v1/predict", content=bytes(payload[: max(1, len(payload) - cut)]))
            assert response.status_code in (200, 400, 413), response.text

        check()
    assert httpx.post(f"{service.url}/v1/predict", content=RED, timeout=30).json()["label"] == "red"
