"""Models: figures, report, and the calls that change what is served."""

import contextlib

import httpx
import pytest

from tests.running import ADMIN_KEY

pytestmark = pytest.mark.browser


def test_the_report_is_shown_with_its_plot_and_its_markup_stays_text(open_console):
    console = open_console("models")
    report = console.page.locator(".report")
    report.get_by_text("version 1").wait_for()
    assert report.locator("table tbody tr").count() == 3
    assert "<b>bold</b>" in report.inner_text()
    plot = report.locator("img")
    plot.scroll_into_view_if_needed()
    console.page.wait_for_function("() => document.querySelector('.report img').naturalWidth === 480")


def test_figures_and_operating_points_are_those_of_the_service(open_console, console_service):
    console = open_console("models")
    version = httpx.get(f"{console_service.url}/v1/models/colours").json()["versions"][0]
    text = console.page.locator(".model-grid").inner_text().replace("\u202f", " ")
    assert f"{100 * version['figures']['accuracy']:.2f} %" in text
    for point in version["operating_points"]:
        assert f"≤ {100 * point['rejected_share_bound']:.1f} %" in text
    for name, figures in version["figures"]["outside"].items():
        assert name in text
        assert f"{100 * figures['auroc']:.1f} %" in text


def confirm(row, action):
    """Press a button and the question that takes its place; ask again where the view was drawn anew in between."""
    from playwright.sync_api import TimeoutError as TookTooLong

    for _ in range(10):
        row.get_by_role("button", name=action, exact=True).click()
        with contextlib.suppress(TookTooLong):
            return row.get_by_role("button", name=f"Really? {action}").click(timeout=3000)
    raise AssertionError(f"the question about {action} never stayed long enough to be answered")


def test_a_version_is_loaded_swapped_and_unloaded_and_errors_are_the_services(open_console, console_service):
    route = f"{console_service.url}/v1/models/colours"
    console = open_console("models")
    page = console.page
    outcome = page.locator(".outcome")
    page.get_by_label("version", exact=True).fill("7")
    page.get_by_role("button", name="Load", exact=True).click()
    console.give_key()
    outcome.get_by_text("model colours has no version 7 in the models directory; there are: 1, 2").wait_for()
    try:
        page.get_by_label("version", exact=True).fill("2")
        page.get_by_role("button", name="Load", exact=True).click()
        outcome.get_by_text("Loaded colours v2.").wait_for()
        page.locator(".versions tr", has_text="v2").get_by_role("button", name="Let it answer").click()
        outcome.get_by_text("colours v2 answers now.").wait_for()
        assert httpx.get(route).json()["default_version"] == 2
        page.locator(".report").get_by_text("colours, version 2").wait_for()
    finally:
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        httpx.put(f"{route}/default", json={"version": 1}, headers=headers).raise_for_status()
    outcome.get_by_text("answers now").wait_for()
    row = page.locator(".versions tr", has_text="v2")
    confirm(row, "Unload")
    outcome.get_by_text("Unloaded v2.").wait_for()
    assert [version["version"] for version in httpx.get(route).json()["versions"]] == [1]
