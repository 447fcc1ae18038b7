"""Clients that hang up before they are answered: nobody's fault, and no part of the error budget."""

import re
import socket
import struct
from collections import Counter
from urllib.parse import urlsplit

import httpx
import numpy as np
import orjson
import pytest

from tests import tiny
from tests.hammer import PATIENCE_SECONDS, eventually
from tests.running import ADMIN_KEY, RunningService
from tests.service.pictures import RED

COUNTED = re.compile(r'^portcullis_http_requests_total{method="(\w+)",route="(\S+)",status="(\d+)"} (\S+)$', re.M)

FORM = b'--x\r\ncontent-disposition: form-data; name="f"; filename="a"\r\n\r\n' + RED + b"\r\n--x--"


@pytest.fixture(scope="module")
def service(models, tmp_path_factory):
    with RunningService(models, tmp_path_factory.mktemp("runtime"), "--workers", "1") as service:
        yield service


def hang_up(service, method, path, body, announced=None, kind="application/json"):
    """Ask, and be gone before the answer can come: a reset is noticed at once."""
    address = urlsplit(service.url)
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN_KEY}\r\n"
    head += f"content-type: {kind}\r\ncontent-length: {announced or len(body)}\r\n\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SECONDS) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(head.encode() + body)


def statuses(service, method, route):
    """How the requests of a route have ended so far, by status."""
    found = COUNTED.findall(httpx.get(f"{service.url}/metrics", timeout=30).text)
    return Counter({int(match[2]): float(match[3]) for match in found if match[:2] == (method, route)})


def tensor(num_images):
    images = {"name": "images", "datatype": "UINT8", "shape": [num_images, tiny.SIZE, tiny.SIZE, 3]}
    data = np.zeros(num_images * tiny.SIZE * tiny.SIZE * 3, np.uint8).tolist()
    return orjson.dumps({"inputs": [images | {"data": data}]})


@pytest.mark.parametrize(
    ("method", "path", "route", "body", "announced"),
    [
        ("POST", "/v1/predict", "/v1/predict", RED, 1000),
        ("POST", "/v2/models/tiny/infer", "/v2/models/{name}/infer", b"{", 1000),
        ("PUT", "/v1/models/tiny/gate", "/v1/models/{name}/gate", b"{", 1000),
    ],
    ids=["predict", "infer", "gate"],
)
def test_a_body_that_is_cut_short_by_its_client_is_counted_as_that(service, method, path, route, body, announced):
    before = statuses(service, method, route)
    for _ in range(3):
        hang_up(service, method, path, body, announced)
    eventually(lambda: statuses(service, method, route).total() == before.total() + 3)
    assert statuses(service, method, route) - before == {499: 3}
    text = httpx.get(f"{service.url}/metrics", timeout=30).text
    assert 'portcullis_errors_total{code="client_gone"}' in text


@pytest.mark.parametrize(
    ("path", "route", "body", "kind"),
    [
        ("/v1/predict", "/v1/predict", RED, "image/png"),
        ("/v1/predict/batch", "/v1/predict/batch", FORM, "multipart/form-data; boundary=x"),
        ("/v2/models/tiny/infer", "/v2/models/{name}/infer", tensor(4), "application/json"),
    ],
    ids=["predict", "batch", "infer"],
)
def test_one_who_goes_while_the_image_waits_costs_no_error_of_ours(service, path, route, body, kind):
    """Whether the engine or the client is faster is a matter of chance; both end well."""
    before = statuses(service, "POST", route)

    def some_were_gone():
        for _ in range(20):
            hang_up(service, "POST", path, body, kind=kind)
        return (statuses(service, "POST", route) - before)[499]

    eventually(some_were_gone)
    assert set(statuses(service, "POST", route)) <= {200, 499}
