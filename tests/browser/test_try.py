"""Try: a person gives images and reads the answers."""

import base64

import httpx
import pytest

from portcullis.bundle import gate
from tests import tiny
from tests.service.pictures import RED, STRANGE

pytestmark = pytest.mark.browser


def give(console, *files):
    console.page.set_input_files(
        "#files", [{"name": name, "mimeType": "image/png", "buffer": content} for name, content in files]
    )


def card(console, name):
    found = console.page.locator(".card", has_text=name)
    found.locator(".answer, .failure").first.wait_for()
    return found


def test_a_familiar_and_a_strange_image_get_their_verdict_in_words_and_figures(open_console, console_service):
    console = open_console("try")
    give(console, ("poppy.png", RED), ("noise.png", STRANGE))
    accepted, rejected = card(console, "poppy.png"), card(console, "noise.png")
    assert accepted.locator(".verdict").inner_text() == "accept"
    assert accepted.locator(".answer .label").inner_text() == "red"
    assert rejected.locator(".verdict").inner_text() == "reject: stranger"
    assert "Stranger than all 999 images it was calibrated on" in rejected.inner_text()
    score = httpx.post(f"{console_service.url}/v1/predict", content=RED).json()["score"]
    share = gate.p_value(score, tiny.manifest().calibration)
    assert f"More familiar than {100 * share:.1f}\u202f% of the images it knows" in accepted.inner_text()
    assert accepted.locator(".bars li").count() == 3
    assert accepted.locator("canvas").count() == rejected.locator("canvas").count() == 1
    assert rejected.locator("[role=img]").get_attribute("aria-label").endswith("reject.")
    assert "reject" in console.page.locator("#announcer").inner_text() + rejected.inner_text()


def test_a_file_that_is_no_image_is_refused_in_the_words_of_the_service_and_harms_no_other(open_console):
    console = open_console("try")
    give(console, ("notes.txt", b"not an image at all"), ("poppy.png", RED))
    assert "expected an image (PNG" in card(console, "notes.txt").locator(".failure").inner_text()
    assert card(console, "poppy.png").locator(".verdict").inner_text() == "accept"


def test_an_example_that_came_with_the_bundle_is_one_click_away(open_console):
    console = open_console("try")
    console.page.get_by_role("button", name="strange: greys").click()
    assert card(console, "strange: greys").locator(".verdict").inner_text() == "reject: stranger"
    console.page.get_by_role("button", name="familiar: blue").click()
    assert card(console, "familiar: blue").locator(".answer .label").inner_text() == "blue"


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_an_image_can_be_dropped_or_pasted(open_console, way):
    console = open_console("try")
    console.page.evaluate(
        """([way, encoded]) => {
            const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
            const carried = new DataTransfer();
            carried.items.add(new File([bytes], "carried.png", { type: "image/png" }));
            window.dispatchEvent(way === "drop"
                ? new DragEvent("drop", { dataTransfer: carried, cancelable: true })
                : new ClipboardEvent("paste", { clipboardData: carried }));
        }""",
        [way, base64.b64encode(RED).decode()],
    )
    assert card(console, "carried.png").locator(".verdict").inner_text() == "accept"


def test_the_file_picker_is_reached_by_keyboard(open_console):
    console = open_console("try")
    for _ in range(20):
        console.page.keyboard.press("Tab")
        if console.page.evaluate("document.activeElement.id") == "files":
            return
    pytest.fail("Tab never reaches the file picker")
