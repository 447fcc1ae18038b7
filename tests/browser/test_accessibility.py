"""Everybody can use it: axe finds nothing serious, a phone needs no sideways scrolling, Tab reaches what matters."""

import httpx
import pytest

from tests import tiny
from tests.browser.conftest import PHONE
from tests.running import ADMIN_KEY
from tests.service.pictures import RED, STRANGE, encode

pytestmark = pytest.mark.browser
VIEWS = ("try", "gate", "live", "models", "review")


@pytest.fixture(scope="module")
def has_traffic(console_service):
    with httpx.Client(base_url=console_service.url) as client:
        for image in tiny.familiar(10, seed=9)[0]:
            client.post("/v1/predict?model=colours", content=encode(image)).raise_for_status()


def fill_view(console, view):
    """Bring a view to where it has something to judge."""
    page = console.page
    if view == "try":
        files = {"poppy.png": RED, "noise.png": STRANGE, "notes.txt": b"no image"}
        page.set_input_files(
            "#files", [{"name": name, "mimeType": "image/png", "buffer": content} for name, content in files.items()]
        )
        page.locator(".card .answer").nth(1).wait_for()
        page.locator(".card .failure").wait_for()
    elif view == "gate":
        page.get_by_role("slider").press("ArrowRight")
    elif view == "live":
        page.locator(".live-grid canvas").first.wait_for()
    elif view == "models":
        page.locator(".report table").wait_for()
    else:
        page.get_by_role("button", name="Enter a key").click()
        console.give_key(ADMIN_KEY)
        page.locator(".review-item").first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation_in_any_view(open_console, has_traffic, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    console = open_console(scheme=scheme)
    assert [problem for view in VIEWS for problem in serious_problems(axe.Axe(), console, view)] == []


def serious_problems(axe, console, view):
    console.show(view)
    fill_view(console, view)
    return [
        f"{view}: {violation['id']}: {node['html'][:160]} ({node['failureSummary']})"
        for violation in axe.run(console.page).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def test_a_phone_needs_no_sideways_scrolling(open_console, has_traffic):
    console = open_console(size=PHONE)
    widths = {}
    for view in VIEWS:
        console.show(view)
        fill_view(console, view)
        widths[view] = console.page.evaluate("document.documentElement.scrollWidth")
    assert {view: width for view, width in widths.items() if width > PHONE[0]} == {}


def test_the_dialog_for_the_key_can_be_used_and_left_by_keyboard(open_console):
    console = open_console("try")
    page = console.page
    page.locator("#key").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "key-value"
    page.keyboard.press("Escape")
    page.locator("#key-dialog").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.id") == "key"
    assert page.evaluate("sessionStorage.length") == 0
