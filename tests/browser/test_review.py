"""Review: kept images are labelled and dismissed from the keyboard, and exported."""

import io
import zipfile

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.browser import colours
from tests.hammer import eventually
from tests.running import ADMIN_KEY
from tests.service.pictures import encode

pytestmark = pytest.mark.browser


def is_settled(client):
    """Whether every image that was answered has been kept, or not: no more will come while a test counts them."""
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    answered, offered = (
        sum(sample.value for sample in families[name].samples if sample.name.endswith("_total"))
        for name in ("portcullis_predictions", "portcullis_review_items")
    )
    return offered >= answered


@pytest.fixture
def review(open_console, console_service):
    """The view with at least four open images, unlocked."""
    with httpx.Client(base_url=console_service.url) as client:
        for image in colours.greys(4, seed=11):
            client.post("/v1/predict?model=colours", content=encode(image)).raise_for_status()
        eventually(lambda: is_settled(client))
    console = open_console("review")
    console.page.get_by_role("button", name="Enter a key").click()
    console.give_key()
    console.page.locator(".review-item img[src^=blob]").nth(3).wait_for()
    return console


def kept(console, **filters):
    return httpx.get(
        f"{console.url}/v1/review",
        params={"model": "colours", "limit": 500, **filters},
        headers={"authorization": f"Bearer {ADMIN_KEY}"},
    ).json()["items"]


def test_the_strangest_come_first_and_filters_narrow_them(review):
    page = review.page
    assert page.locator(".review-item").count() == min(60, len(kept(review, state="open")))
    page.get_by_label("verdict").select_option("accept")
    accepted = kept(review, state="open", verdict="accept")
    page.get_by_text(f"{len(accepted)} open" if accepted else "No open image").wait_for()
    page.get_by_label("verdict").select_option("reject")
    page.locator(".review-item .verdict.reject").first.wait_for()
    expected = [item["label"] for item in kept(review, state="open", verdict="reject")][:60]
    assert page.locator(".review-item .row strong").all_inner_texts() == expected


def test_images_are_labelled_dismissed_and_taken_back_by_keyboard_and_exported(review):
    page = review.page
    first, second = (page.locator(".review-item").nth(place).get_attribute("data-id") for place in range(2))
    page.locator(".review-item").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.type("fog")
    page.keyboard.press("Enter")
    page.get_by_text("Labelled fog").wait_for()
    page.keyboard.press("d")
    page.locator("#announcer").get_by_text("Dismissed").wait_for()
    assert [item["id"] for item in kept(review, state="dismissed")] == [second]
    page.keyboard.press("u")
    page.locator("#announcer").get_by_text("Undone").wait_for()
    page.locator(f".review-item[data-id='{second}']:focus").wait_for()
    assert kept(review, state="dismissed") == []
    third = page.locator(f".review-item[data-id='{second}'] + .review-item").get_attribute("data-id")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("a")
    page.locator("#announcer").get_by_text("Labelled").wait_for()
    labelled = {item["id"]: item["true_label"] for item in kept(review, state="labelled")}
    assert labelled[first] == "fog"
    assert set(labelled) == {first, third}
    with page.expect_download() as download:
        page.get_by_role("button", name="Export labelled").click()
    with zipfile.ZipFile(io.BytesIO(download.value.path().read_bytes())) as archive:
        assert set(archive.namelist()) == {f"{label}/{identifier}.png" for identifier, label in labelled.items()}
        assert archive.read(f"fog/{first}.png").startswith(b"\x89PNG")
