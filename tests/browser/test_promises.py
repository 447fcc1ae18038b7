"""Both promises in the console, on a bundle of format 2: the gate's points, the reason of a reject, the candidates."""

import httpx
import numpy as np
import pytest

from portcullis.bundle.files import write_bundle
from portcullis.bundle.recalibration import right_points
from tests import tiny
from tests.hammer import eventually
from tests.running import ADMIN_KEY, RunningService
from tests.service.pictures import encode

pytestmark = pytest.mark.browser
GREY = encode(np.full((tiny.SIZE, tiny.SIZE, 3), (120, 118, 119), np.uint8))
DARK = encode(np.full((tiny.SIZE, tiny.SIZE, 3), (30, 28, 29), np.uint8))  # the queue keeps an image once, as first met


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    models, manifest = tmp_path_factory.mktemp("promising-models"), tiny.fitted_manifest()
    manifest = manifest.model_copy(update={"promises": right_points(manifest)})
    write_bundle(models, manifest, {"model.onnx": tiny.graph(format_version=2), "report.md": b"# tiny\n"})
    with RunningService(models, tmp_path_factory.mktemp("promising"), "--review-enabled") as running:
        yield running


def in_force(service):
    return httpx.get(f"{service.url}/v1/models/tiny/gate").json()["operating_point"]


def put_gate(service, operating_point):
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    route = f"{service.url}/v1/models/tiny/gate"
    return httpx.put(route, json={"operating_point": operating_point}, headers=headers).raise_for_status().json()


def plain(locator):
    return locator.inner_text().replace("\u202f", " ").replace("−", "-")


def test_a_person_chooses_by_class_then_both_promises_then_one_threshold_again(open_console, service):
    console = open_console("gate", url=service.url)
    page, is_first = console.page, True
    for point in ("accept95:by-class", "accept95+right99", "right99", "accept95"):
        page.get_by_role("button", name=point, exact=True).click()
        page.get_by_role("button", name="Apply").click()
        if is_first:
            console.give_key()
            is_first = False
        page.locator(".gate .intro", has_text=f"({point})").wait_for()
        assert in_force(service) == point
        intro = page.locator(".gate .intro").inner_text()
        assert ("Of familiar (in-distribution) images that pass, at most" in intro) == ("right" in point)
        assert ("Nothing is said about out-of-distribution (OOD) images" in intro) == ("right" in point)
        assert ("scores below" in intro) == (point != "right99")
        caught = page.locator(".caught caption").inner_text()
        assert ("at the least" in caught) == (point != "accept95")
        assert ("by their score alone" in caught) == ("right" in point)
        shown = plain(page.locator(".caught tbody tr").first.locator("td.number").first)
        assert (shown == "0.0 %") == (point == "right99")
    page.get_by_role("slider", name="Threshold").press("ArrowRight")
    assert page.get_by_role("button", name="Apply").is_enabled()


def test_a_gate_on_mmles_is_shown_and_moved_on_its_own_scale(open_console, service):
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    route = f"{service.url}/v1/models/tiny/gate"
    httpx.put(route, json={"operating_point": "mmles:accept95"}, headers=headers).raise_for_status()
    try:
        console = open_console("gate", url=service.url)
        console.page.get_by_role("button", name="mmles:accept99", exact=True).click()
        console.page.get_by_role("button", name="Apply").click()
        console.give_key()
        console.page.locator(".gate .intro", has_text="(mmles:accept99)").wait_for()
        assert in_force(service) == "mmles:accept99"
        console.page.get_by_text("holds no mmles scores of out-of-distribution (OOD) sets").wait_for()
    finally:
        httpx.put(route, json={"operating_point": "accept95"}, headers=headers).raise_for_status()


def test_thresholds_by_class_are_listed_as_the_service_tells_them(open_console, service):
    page = open_console("gate", url=service.url).page
    assert page.get_by_text("Thresholds by class").count() == 0
    page.get_by_role("button", name="accept95:by-class", exact=True).click()
    page.get_by_text("Thresholds by class").click()
    rows = page.locator(".by-class tbody tr").all()
    shown = {row.locator("th").inner_text(): float(plain(row.locator("td"))) for row in rows}
    told = httpx.get(f"{service.url}/v1/models/tiny").json()["versions"][0]["class_thresholds"]["accept95"]
    assert shown == pytest.approx(told, abs=0.01)


def test_a_gate_that_is_no_button_is_shown_with_what_it_rejects_and_promises(open_console, service):
    """The lowest of its thresholds alone would say that it rejects hardly anything."""
    gate = put_gate(service, "accept80:by-class+right95")
    try:
        page = open_console("gate", url=service.url).page
        share = f"{100 * gate['expected_rejected_share']:.1f} %"
        assert f"about {share} of familiar images" in plain(page.locator(".gate .intro"))
        assert plain(page.locator("#rejected")) == share
        assert "are answered wrongly" in page.locator(".headline").inner_text()
        page.get_by_text("Thresholds by class").wait_for()
    finally:
        put_gate(service, "accept95")


def test_a_page_that_is_open_follows_when_another_score_gates(open_console, service):
    """Both views have asked for the reference of the fitted score before somebody chooses MMLES."""
    gate, tried = (open_console(view, url=service.url).page for view in ("gate", "try"))
    tried.locator("#files").set_input_files({"name": "first.png", "mimeType": "image/png", "buffer": DARK})
    tried.locator(".card .figures").wait_for()
    try:
        threshold = put_gate(service, "mmles:accept95")["threshold"]
        with tried.expect_response(lambda answer: "/reference" in answer.url) as asked:
            tried.locator("#files").set_input_files({"name": "then.png", "mimeType": "image/png", "buffer": DARK})
        assert asked.value.json()["score"] == "mmles"
        for view in ("Live", "Gate"):
            gate.get_by_role("navigation").get_by_role("link", name=view, exact=True).click()
        gate.locator(".gate .intro", has_text="(mmles:accept95)").wait_for()
        slider = gate.get_by_role("slider", name="Threshold")
        low, high = (float(slider.get_attribute(f"aria-value{end}")) for end in ("min", "max"))
        assert low < threshold < high
        assert plain(gate.locator("#rejected")) in ("4.9 %", "5.0 %", "5.1 %")
    finally:
        put_gate(service, "accept95")


def test_models_lists_the_promises_and_review_offers_the_candidates(open_console, service):
    console = open_console("models", url=service.url)
    assert "accept95+right99" in console.page.get_by_role("region", name="Right answers").inner_text()
    origin = console.page.locator(".sheet", has_text="Origin").inner_text()
    assert all(f"{weight:.2f} × {part}" in origin for part, weight in zip(tiny.PARTS, tiny.WEIGHTS, strict=True))
    httpx.post(f"{service.url}/v1/predict?operating_point=right99", content=GREY).raise_for_status()
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    eventually(lambda: httpx.get(f"{service.url}/v1/review", headers=headers).json()["num_items"])
    console = open_console("review", url=service.url)
    console.page.get_by_role("button", name="Enter a key").click()
    console.give_key()
    tile = console.page.locator(".review-item", has_text="reject: unsure").first
    tile.wait_for()
    assert tile.get_by_role("group", name="Likely labels").get_by_role("button").count() >= 1


def test_at_most_is_said_of_a_promise_only_and_what_was_counted_is_about_so_much(open_console, service):
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    route = f"{service.url}/v1/models/tiny/gate"
    httpx.post(f"{service.url}/v1/predict", content=GREY).raise_for_status()  # without traffic Live has no charts
    asked_for = {"accept95": "at most", "right99": "about", "-1.5": "about"}
    for gate, words in asked_for.items():
        httpx.put(route, json={"operating_point": gate}, headers=headers).raise_for_status()
        assert f": {words} " in open_console("gate", url=service.url).page.locator(".gate .intro").inner_text()
        live = open_console("live", url=service.url).page
        live.get_by_text(f"share of the window; dashed: {words}").wait_for()
    httpx.put(route, json={"operating_point": "accept95"}, headers=headers).raise_for_status()


def test_a_person_calibrates_on_a_folder_and_lets_the_next_version_answer(open_console, service, tmp_path):
    images, labels = tiny.familiar(30, seed=5)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = tmp_path / "mine" / tiny.LABELS[label]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(encode(image))
    console = open_console("models", url=service.url)
    page, outcome = console.page, console.page.locator(".sheet", has_text="Calibrate where it runs").locator(".outcome")
    page.get_by_role("button", name="Calibrate", exact=True).click()
    console.give_key()
    outcome.get_by_text("takes 19 labelled images that were drawn by chance").wait_for()
    page.get_by_label("Folder of familiar images").set_input_files(tmp_path / "mine")
    page.get_by_label("its sub-folders are named after the labels").check()
    page.get_by_role("button", name="Calibrate", exact=True).click()
    outcome.get_by_text("tiny v2 is written, calibrated on 30 images.").wait_for()
    said = outcome.inner_text()
    assert "familiar (in-distribution) images only" in said
    assert "accept95: rejects at most 5 % of familiar images" in said
    assert "accept99 needs at least 99 calibration images" in said
    assert httpx.get(f"{service.url}/v1/models/tiny").json()["default_version"] == 1
    outcome.get_by_role("button", name="Let v2 answer").click()
    outcome.get_by_text("tiny v2 answers now. Every worker has followed.").wait_for()
    assert httpx.get(f"{service.url}/v1/models/tiny").json()["default_version"] == 2
    page.get_by_text("on 30 images that training never saw").wait_for()  # they are the calibration images too
