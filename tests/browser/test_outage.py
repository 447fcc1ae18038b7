"""The service stops, comes back, or wants a key: the console says so and goes on by itself."""

import httpx
import pytest

from tests import tiny
from tests.running import RunningService
from tests.service.pictures import RED

pytestmark = pytest.mark.browser
PREDICT_KEY = "test-predict-secret"


def test_the_console_asks_for_a_key_says_when_the_service_is_gone_and_recovers(open_console, tmp_path):
    models = tmp_path / "models"
    tiny.write(models)
    flags = ["--workers", "1", "--predict-keys", f"reader:{PREDICT_KEY}"]
    with RunningService(models, tmp_path / "runtime", *flags) as service:
        port = httpx.URL(service.url).port
        console = _unlock(open_console, service.url)
        page = console.page
        page.set_input_files("#files", [{"name": "poppy.png", "mimeType": "image/png", "buffer": RED}])
        page.locator(".card .verdict.accept").wait_for()
        service.stop()
        page.locator("#outage").get_by_text("does not answer").wait_for()
        assert page.locator("#health").inner_text() == "unreachable"
        page.set_input_files("#files", [{"name": "late.png", "mimeType": "image/png", "buffer": RED}])
        late = page.locator(".card", has_text="late.png")
        late.get_by_text("The service does not answer").wait_for()
    tiny.write(models, version=2)
    with RunningService(models, tmp_path / "runtime", *flags, "--port", str(port)):
        page.locator("#health[data-health=ready]").wait_for()
        page.locator("#model option", has_text="tiny · v2").wait_for(state="attached")
        assert not page.locator("#outage").is_visible()
        late.get_by_role("button", name="Try again").click()
        late.locator(".verdict.accept").wait_for()
        assert page.locator(".card").count() == 2


def _unlock(open_console, url):
    """A wrong key is refused in the words of the service; the right one opens the view."""
    console = open_console("try", url=url, is_locked=True)
    console.page.get_by_role("dialog").get_by_text("this service wants a key").wait_for()
    console.give_key("a-wrong-predict-key")
    refusal = console.page.locator("main .failure")
    refusal.get_by_text("the key is not one of those that may predict").wait_for()
    refusal.get_by_role("button", name="Use another key").click()
    console.give_key(PREDICT_KEY)
    console.page.locator(".drop").wait_for()
    return console
