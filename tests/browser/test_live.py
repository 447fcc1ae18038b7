"""Live: the view follows real traffic."""

import httpx
import pytest

from tests import tiny
from tests.browser import colours
from tests.service.pictures import encode

pytestmark = pytest.mark.browser


def send(url, images, model="colours"):
    with httpx.Client(base_url=url) as client:
        for image in images:
            client.post(f"/v1/predict?model={model}", content=encode(image)).raise_for_status()


def tile(console, name):
    return console.page.locator(".tile", has=console.page.get_by_text(name, exact=True)).locator(".value")


def test_before_there_is_traffic_the_view_says_so_and_afterwards_it_shows_it(open_console, console_service):
    console = open_console("live")
    console.choose_model("quiet")
    console.page.get_by_text("No traffic yet").wait_for()
    assert f"{console_service.url}/v1/predict" in console.page.locator(".blank code").inner_text()
    send(console_service.url, tiny.familiar(20, seed=4)[0], "quiet")
    console.page.locator(".live-grid canvas").first.wait_for()
    console.page.get_by_text("20 in all").wait_for()
    assert console.page.locator(".live-grid canvas").count() == 7


def test_a_flood_of_strangers_raises_the_rejected_share_and_the_alarm(open_console, console_service):
    send(console_service.url, tiny.familiar(40, seed=5)[0], "flooded")
    console = open_console("live")
    console.choose_model("flooded")
    console.page.get_by_text("40 in all").wait_for()
    calm = f"{100 * published_with(console_service.url, 40)['reject_ratio']:.1f}"
    tile(console, "rejected").get_by_text(calm).wait_for()  # the counters may be shown before the first drift report
    assert console.page.locator(".alarm .notice").count() == 0
    send(console_service.url, colours.greys(60, seed=6), "flooded")
    console.page.locator(".alarm").get_by_text("Drift alarm").wait_for()
    published = published_with(console_service.url, 100)
    share = f"{100 * published['reject_ratio']:.1f}"
    tile(console, "rejected").get_by_text(share).wait_for()
    assert float(share) > float(calm)
    evidence = f"Evidence of drift {published['evidence_log10']:.1f}, alarm at 6.0"
    console.page.get_by_role("img", name=evidence).wait_for()
    mix = console.page.locator(".mix").inner_text().replace("\u202f", " ")
    for share in published["class_mix"]:
        assert f"{100 * share:.1f} %" in mix


def published_with(url, num_images):
    """The drift report once it has taken in all of them."""
    with httpx.Client(base_url=url) as client:
        while True:  # the test's own time limit ends it
            report = client.get("/v1/models/flooded/drift").raise_for_status().json()
            if report["num_images_since_reset"] >= num_images:
                return report
