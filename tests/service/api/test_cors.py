"""Pages of other origins: what the service tells their browsers, on every way that an answer can take."""

from types import SimpleNamespace

import httpx
import pytest

from portcullis.api.cors import Cors
from portcullis.api.front import Front
from portcullis.errors import Overloaded, SettingsError
from portcullis.settings import Settings
from portcullis.telemetry.instruments import Metrics
from portcullis.telemetry.logs import RequestLog
from tests.running import ADMIN_KEY, RunningService
from tests.service.conftest import PREDICT_KEY
from tests.service.pictures import BROKEN, RED, STRANGE

SHOP = "https://shop.example"
ALLOW = "access-control-allow-origin"
KEY = {"authorization": f"Bearer {PREDICT_KEY}"}


@pytest.fixture(scope="module")
def client(models, tmp_path_factory):
    flags = ["--cors-origins", f"{SHOP},http://127.0.0.1:3000", "--predict-keys", f"caller:{PREDICT_KEY}"]
    flags += ["--max-body-bytes", "100000", "--workers", "1"]
    with (
        RunningService(models, tmp_path_factory.mktemp("runtime"), *flags) as service,
        httpx.Client(base_url=service.url, timeout=30) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("method", "path", "content", "headers", "status"),
    [
        ("POST", "/v1/predict", RED, KEY, 200),
        ("POST", "/v1/predict?on_reject=422", STRANGE, KEY, 422),
        ("POST", "/v1/predict", BROKEN, KEY, 400),
        ("POST", "/v1/predict", RED, {}, 401),
        ("POST", "/v1/predict", b"x" * 100_001, KEY, 413),
        ("POST", "/v1/predict?treshold=1", RED, KEY, 422),
        ("POST", "/v1/predict/batch", RED, KEY, 415),
        ("PUT", "/v1/predict", RED, KEY, 405),
        ("GET", "/v1/models", b"", KEY, 200),
        ("GET", "/v1/models", b"", {}, 401),
        ("PUT", "/v1/models/tiny/gate", b"{", {"authorization": f"Bearer {ADMIN_KEY}"}, 400),
        ("GET", "/v1/nothing", b"", KEY, 404),
        ("POST", "/v2/models/tiny/infer", b"{", KEY, 400),
        ("GET", "/v2/health/ready", b"", {}, 200),
        ("GET", "/healthz", b"", {}, 200),
        ("GET", "/", b"", {}, 200),
    ],
    ids=lambda value: str(value) if isinstance(value, (str, int)) else "",
)
def test_every_answer_says_that_the_page_may_read_it(client, method, path, content, headers, status):
    answer = client.request(method, path, content=content, headers=headers | {"origin": SHOP})
    assert (answer.status_code, answer.headers.get_list(ALLOW)) == (status, [SHOP])
    assert "origin" in answer.headers["vary"].lower()
    assert "x-request-id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "https://shop.example.evil", "null", None])
def test_other_pages_are_told_nothing_but_caches_that_it_depends(client, origin):
    headers = {"origin": origin} if origin else {}
    answer = client.post("/v1/predict", content=RED, headers=headers | KEY)
    assert (answer.status_code, answer.headers["vary"]) == (200, "origin")
    assert ALLOW not in answer.headers


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/models/tiny/gate", "/v2/models/tiny/infer"])
def test_a_browser_that_asks_first_is_answered_without_a_key(client, path):
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    answer = client.options(path, headers=asks | {"origin": SHOP})
    assert (answer.status_code, answer.content, answer.headers.get_list(ALLOW)) == (204, b"", [SHOP])
    assert {"GET", "POST", "PUT", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
    assert answer.headers["access-control-allow-headers"] == "*, authorization"  # a star does not cover that one
    refused = client.options(path, headers=asks | {"origin": "https://elsewhere.example"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert ALLOW not in refused.headers


def test_a_flood_is_turned_away_on_its_short_way_with_the_same_headers():
    answer = _flooded(Cors((SHOP,)))(b"/v1/predict", [(b"origin", SHOP.encode())])
    assert answer.status == 503
    assert (ALLOW.encode(), SHOP.encode()) in answer.headers


def _flooded(cors):
    """`turn_away` of a front whose only route is flooded."""

    def flood():
        return Overloaded("too much")

    route = SimpleNamespace(path="/v1/predict", bare=SimpleNamespace(flood=flood))
    context = SimpleNamespace(settings=Settings(), metrics=Metrics(), request_log=RequestLog(0, "json"), tracing=None)
    return Front(None, context, {"/v1/predict": route}, lambda path: 0, cors).turn_away


def test_the_short_way_stays_on_in_the_running_service(client):
    """Answers of the bare route have fewer headers than those that pass through the framework."""
    assert "x-frame-options" not in client.post("/v1/predict", content=RED, headers=KEY).headers
    assert "x-frame-options" in client.get("/healthz").headers


def test_any_page_may_call_where_all_origins_are_allowed():
    headers = dict(Cors(("*",)).headers([(b"origin", b"https://anywhere.example")]))
    assert headers[ALLOW.encode()] == b"*"
    assert b"vary" not in headers


@pytest.mark.parametrize("origin", ["https://shop.example/", "shop.example", "https://shop.example/page", ""])
def test_what_is_no_origin_is_refused_at_the_start(origin):
    with pytest.raises(SettingsError, match=r"cors_origins: expected an origin such as https://example\.com"):
        Cors((origin,))
