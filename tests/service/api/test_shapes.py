"""Whatever is sent to whatever route, an error has the one shape; under `/v2` that of the protocol."""

import re

import httpx
import pytest

from portcullis.api.open_inference.schemas import ProtocolError
from portcullis.schemas.answers import ErrorAnswer
from tests.running import ADMIN_KEY, RunningService

DEEP = b"[" * 100_000
BODIES = {
    "draft": b'{"operating_point": "acc',
    "not even that": b"{",
    "another type": b"[1, 2]",
    "a word": b'"red"',
    "null": b"null",
    "unknown field": b'{"colour": "red"}',
    "wrong values": b'{"operating_point": 3, "threshold": "high", "version": -1, "share": 7, "label": {}, "inputs": 1}',
    "not text": b"\xff\xfe{",
    "nested too deep": DEEP,
    "nothing": b"",
}
KINDS = [
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "application/x-unknown",
    "application/merge-patch+json",
    "multipart/form-data",
    "multipart/form-data; boundary=",
    'multipart/form-data; boundary="' + "x" * 300 + '"',
    "application/x-www-form-urlencoded",
    "nonsense",
    ";",
    "",
    None,
]
NAMES = {"name": "tiny", "version": "1", "path": "a.png", "id": "0" * 16}
BAD_NAMES = {"name": "no%2F..%2Fbody", "version": "one", "path": "%00", "id": "x"}


@pytest.fixture(scope="module")
def client(models, tmp_path_factory):
    flags = ["--review-enabled", "--workers", "1", "--log-requests-per-second", "0"]
    with (
        RunningService(models, tmp_path_factory.mktemp("runtime"), *flags) as service,
        httpx.Client(base_url=service.url, timeout=60, headers={"x-api-key": ADMIN_KEY}) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def routes(client):
    paths = client.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, operations in paths.items() for method in operations]


def filled(path, names):
    return re.sub(r"{(\w+)}", lambda match: names[match[1]], path)


def check(response):
    """Any refusal names its code and its request; none is a failure of ours, none is a page."""
    where = (response.request.method, response.request.url.path, response.request.headers.get("content-type"))
    assert response.status_code < 500, (where, response.text)
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == "application/json", where
    if response.request.url.path.startswith("/v2"):
        assert ProtocolError.model_validate_json(response.content, strict=True).error, where
    else:
        error = ErrorAnswer.model_validate_json(response.content, strict=True).error
        assert (error.request_id, bool(error.code), bool(error.message)) == (
            response.headers["x-request-id"],
            True,
            True,
        )
        assert "Traceback" not in error.message and "/site-packages/" not in error.message


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_malformed_body_on_every_route(client, routes, kind):
    headers = {} if kind is None else {"content-type": kind}
    for method, path in routes:
        if method == "DELETE" or path.endswith(("/unload", "/load", "/promote", "/versions/{version}")):
            continue  # these change what is served, whatever the body
        for name, body in BODIES.items():
            response = client.request(method, filled(path, NAMES), content=body, headers=headers)
            check(response)
            reads_json = method == "PUT" or path.endswith(("infer", "/index"))
            if reads_json and name in ("draft", "not even that", "not text", "nested too deep"):
                assert response.status_code == 400, (method, path, name, response.text)


def test_every_method_on_every_route_with_names_that_exist_and_that_do_not(client, routes):
    for path in sorted({path for _, path in routes}):
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
            if ("POST", path) in routes and method == "POST":
                continue  # above
            for names in (NAMES, BAD_NAMES):
                response = client.request(method, filled(path, names))
                if method != "HEAD":  # which has no body
                    check(response)


@pytest.mark.parametrize(
    "path", ["/v1/nothing", "/v2/nothing", "/v2", "/nothing", "/docs/assets/nothing", "/console/x"]
)
def test_what_does_not_exist(client, path):
    for method in ("GET", "POST", "DELETE"):
        check(client.request(method, path, content=b"{"))


def test_without_a_key_too(client, routes):
    for method, path in routes:
        check(client.request(method, filled(path, NAMES), content=b"{", headers={"x-api-key": "wrong-secret"}))
