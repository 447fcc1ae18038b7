"""A page of another origin that calls the service, in a real browser: it may where `cors_origins` names it."""

import http.server
import threading

import pytest

from tests.running import RunningService
from tests.service.conftest import PREDICT_KEY
from tests.service.pictures import BROKEN, RED

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CALL = """async ([url, key, image]) => {
    const body = Uint8Array.from(image);
    const answer = await fetch(url, {method: "POST", body, headers: {"authorization": `Bearer ${key}`}});
    return [answer.status, answer.headers.get("x-request-id"), await answer.json()];
}"""


class Page(http.server.BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def page(browser):
    """A page of an origin of its own; `origin` is its name."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab = browser.new_page()
        tab.origin = f"http://127.0.0.1:{server.server_port}"
        tab.goto(tab.origin)
        yield tab
        tab.close()
        server.shutdown()


def call(page, service, key, image):
    return page.evaluate(CALL, [f"{service.url}/v1/predict", key, list(image)])


def test_a_page_that_is_named_reads_answers_and_refusals(page, models, tmp_path):
    flags = ["--cors-origins", page.origin, "--predict-keys", f"caller:{PREDICT_KEY}", "--workers", "1"]
    with RunningService(models, tmp_path, *flags) as service:
        status, request_id, answer = call(page, service, PREDICT_KEY, RED)
        assert (status, answer["label"], answer["request_id"]) == (200, "red", request_id)
        assert call(page, service, PREDICT_KEY, BROKEN)[2]["error"]["code"] == "bad_image"
        assert call(page, service, "wrong-secret", RED)[2]["error"]["code"] == "forbidden"


def test_a_page_that_is_not_named_reads_nothing(page, models, tmp_path):
    flags = ["--cors-origins", "https://shop.example", "--workers", "1"]
    with RunningService(models, tmp_path, *flags) as service, pytest.raises(Exception, match="Failed to fetch"):
        call(page, service, PREDICT_KEY, RED)
