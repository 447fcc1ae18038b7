"""Gate: a person moves the threshold, reads what it would do, and applies it."""

import re

import httpx
import numpy as np
import pytest

from portcullis.processes.stores import DATABASE_FILE
from portcullis.store.followers import Followed, Followers
from portcullis.store.sqlite import Sqlite
from tests import tiny
from tests.browser import colours
from tests.running import ADMIN_KEY

pytestmark = pytest.mark.browser
CALIBRATION = np.array(tiny.manifest().calibration.scores)


def percent_of(locator):
    text = locator.inner_text().replace("\u202f", " ")
    return float(re.search(r"([\d.]+) %", text).group(1)) / 100


def threshold_of(console):
    return float(console.page.get_by_label("threshold", exact=True).input_value())


def expect_true_to(console, threshold):
    """Compares what is shown with counts over the scores themselves."""
    page = console.page
    assert percent_of(page.locator("#rejected")) == pytest.approx((threshold > CALIBRATION).mean(), abs=0.0016)
    for name, draw in colours.OUTSIDE.items():
        scores = tiny.answers(draw(500, seed=3))[1]
        shown = percent_of(page.locator(".caught tr", has_text=name).locator("td.number").first)
        assert shown == pytest.approx((scores < threshold).mean(), abs=0.011), name


def test_the_threshold_moves_by_arrow_key_and_shows_what_it_costs_and_catches(open_console):
    console = open_console("gate")
    handle = console.page.get_by_role("slider", name="Threshold")
    before = colours.operating_point("accept95").threshold
    assert threshold_of(console) == pytest.approx(before, abs=1e-5)
    expect_true_to(console, before)
    for _ in range(8):
        handle.press("ArrowRight")
    after = threshold_of(console)
    assert after > before
    expect_true_to(console, after)
    assert float(handle.get_attribute("aria-valuenow")) == pytest.approx(after, abs=1e-5)
    assert "of familiar images" in handle.get_attribute("aria-valuetext")
    handle.press("End")
    assert percent_of(console.page.locator("#rejected")) > 0.99
    handle.press("Home")
    assert percent_of(console.page.locator("#rejected")) == 0


def test_the_threshold_moves_with_the_mouse(open_console):
    console = open_console("gate")
    box = console.page.get_by_role("slider", name="Threshold").bounding_box()
    before = threshold_of(console)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    console.page.mouse.move(x, y)
    console.page.mouse.down()
    console.page.mouse.move(x + 80, y, steps=4)
    console.page.mouse.up()
    after = threshold_of(console)
    assert after > before
    expect_true_to(console, after)
    console.page.mouse.move(x - 80, y)
    assert threshold_of(console) == after


def test_a_wrong_key_changes_nothing_and_the_right_one_applies_and_says_what_changed(open_console, console_service):
    gate_route = f"{console_service.url}/v1/models/colours/gate"
    console = open_console("gate")
    page = console.page
    page.get_by_role("button", name="accept90").click()
    page.get_by_role("button", name="Apply").click()
    console.give_key("not-the-admin-key")
    refusal = page.locator(".outcome .failure")
    assert "the key is not an admin key" in refusal.inner_text()
    assert httpx.get(gate_route).json()["operating_point"] == "accept95"
    try:
        refusal.get_by_role("button", name="Use another key").click()
        console.give_key()
        assert "(accept95) → " in page.locator(".outcome .done").inner_text()
        assert "(accept90)" in page.locator(".outcome .done").inner_text()
        assert "Every worker has followed." in page.locator(".outcome .done").inner_text()
        assert httpx.get(gate_route).json()["operating_point"] == "accept90"
        page.locator(".gate .intro", has_text="(accept90)").wait_for()
        assert page.evaluate("localStorage.length") == 0
    finally:
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        httpx.put(gate_route, json={"operating_point": "accept95"}, headers=headers).raise_for_status()


def test_a_change_that_a_worker_does_not_follow_is_shown_as_accepted_with_its_name(open_console, console_service):
    """The word of a worker that is far behind, and that will never follow: the service waits for it for a while."""
    followers = Followers(Sqlite(console_service.runtime / DATABASE_FILE), "here")
    late = Followed(revision=0)
    gate_route = f"{console_service.url}/v1/models/quiet/gate"
    followers.confirm(9, late)
    try:
        console = open_console("gate")
        console.choose_model("quiet")
        console.page.get_by_role("button", name="accept90").click()
        console.page.get_by_role("button", name="Apply").click()
        console.give_key()
        text = console.page.locator(".outcome .done").inner_text()
        assert text.startswith("Accepted. ")
        assert re.search(r"Not followed yet by worker 9 of \S+ \(it has not taken up the change yet\)", text)
    finally:
        followers.forget(9)
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        answer = httpx.put(gate_route, json={"operating_point": "accept95"}, headers=headers)
    assert (answer.status_code, answer.json()["behind"]) == (200, [])


def test_any_share_of_familiar_images_can_be_promised(open_console):
    console = open_console("gate")
    field = console.page.get_by_label("accept", exact=False).first
    field.fill("97.5")
    field.press("Enter")
    assert percent_of(console.page.locator("#rejected")) == pytest.approx(0.025, abs=0.0016)
