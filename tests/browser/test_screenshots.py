"""The pictures in the documents, taken from the console as it is: `SCREENSHOTS=docs/images pytest tests/browser`.

Where the default of `models/` has examples, that is what Try, Gate and Models show.
"""

import io
import os
import shutil
from pathlib import Path

import httpx
import pytest
from PIL import Image

from portcullis.bundle import files as bundles
from tests import tiny
from tests.browser import colours
from tests.browser.conftest import PHONE
from tests.running import RunningService
from tests.service.pictures import encode

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif("SCREENSHOTS" not in os.environ, reason="asked for with SCREENSHOTS=<directory>"),
]
SHIPPED = Path(__file__).parents[2] / "models"
NUM_EXAMPLES = 4


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """A service with the shipped bundles beside `colours`, whose traffic a test can make up."""
    models = tmp_path_factory.mktemp("models")
    shutil.copytree(SHIPPED, models, dirs_exist_ok=True)
    colours.write(models, "colours")
    flags = ["--review-enabled", "--review-accept-sample", "0.1"]
    with RunningService(models, tmp_path_factory.mktemp("runtime"), *flags) as service:
        yield service


@pytest.fixture(scope="module")
def shown(gallery):
    """The model for the views that need no traffic."""
    name = bundles.default_name(SHIPPED)
    return name if name in bundles.names(SHIPPED) and examples(gallery, name) else "colours"


def examples(service, name):
    return httpx.get(f"{service.url}/v1/models/{name}/examples").raise_for_status().json()["examples"]


def save(console, name, clip_height=None):
    """Write a picture, with few colours: it is small, and the page has not many."""
    viewport = console.page.viewport_size
    clip = {"x": 0, "y": 0, "width": viewport["width"], "height": clip_height} if clip_height else None
    picture = Image.open(io.BytesIO(console.page.screenshot(full_page=True, clip=clip)))
    directory = Path(os.environ["SCREENSHOTS"])
    directory.mkdir(parents=True, exist_ok=True)
    picture.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(directory / f"{name}.png", optimize=True)


def try_examples(console):
    buttons = console.page.locator(".example")
    buttons.first.wait_for()
    for place in range(min(NUM_EXAMPLES, buttons.count())):  # sorted by name: the cat is among the first
        buttons.nth(place).click()
        console.page.locator(".card .answer").nth(place).wait_for()
    console.page.mouse.move(0, 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_try_and_gate(open_console, gallery, shown, scheme):
    suffix = "" if scheme == "light" else "-dark"
    console = open_console("try", url=gallery.url, scheme=scheme)
    console.choose_model(shown)
    try_examples(console)
    save(console, f"console-try{suffix}")
    console.show("gate")
    for _ in range(6):
        console.page.get_by_role("slider").press("ArrowRight")
    save(console, f"console-gate{suffix}")


def test_models(open_console, gallery, shown):
    console = open_console("models", url=gallery.url)
    console.choose_model(shown)
    console.page.locator(".report table").first.wait_for()
    save(console, "console-models", clip_height=1250)


def test_live_and_review(open_console, gallery):
    console = open_console("live", url=gallery.url)
    console.choose_model("colours")
    send(gallery, tiny.familiar(900, seed=21)[0])
    console.page.locator(".live-grid").wait_for()
    send(gallery, [*tiny.familiar(120, seed=22)[0], *colours.greys(60, seed=23)])
    console.page.locator(".alarm .notice").wait_for()
    save(console, "console-live")
    console.show("review")
    console.page.get_by_role("button", name="Enter a key").click()
    console.give_key()
    console.page.locator(".review-item img[src^=blob]").nth(11).wait_for()
    console.page.locator(".review-item").nth(1).focus()
    save(console, "console-review", clip_height=900)


def test_phone(open_console, gallery, shown):
    console = open_console("try", url=gallery.url, size=PHONE)
    console.choose_model(shown)
    console.page.locator(".example").first.click()
    console.page.locator(".card .answer").wait_for()
    save(console, "console-phone", clip_height=PHONE[1])


def send(service, images):
    with httpx.Client(base_url=service.url) as client:
        for image in images:
            client.post("/v1/predict?model=colours", content=encode(image)).raise_for_status()
