"""A real browser on a real service. Everything here skips, with a reason, where the browser is missing."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.browser import colours
from tests.running import ADMIN_KEY, RunningService

CHROMIUM = shutil.which("chromium")
FLAGS = [  # as root there is no sandbox to be had; the rest keeps the browser from calling home
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP = (1280, 900)
PHONE = (375, 780)
TIMEOUT_MS = 120_000  # how long to wait for what should come, on a busy machine too; only a failure takes that long


@dataclass
class Console:
    """One tab on the console, and what went wrong in it."""

    page: Any
    url: str
    problems: list[str] = field(default_factory=list)

    def show(self, view: str) -> None:
        """Go to a view as a person would, by its tab."""
        self.page.get_by_role("navigation").get_by_role("link", name=view.capitalize(), exact=True).click()
        self.page.locator(f"section.view.{view}:not([hidden])").wait_for()

    def choose_model(self, name: str) -> None:
        self.page.locator("#model").select_option(name)

    def give_key(self, key: str = ADMIN_KEY) -> None:
        self.page.locator("#key-value").fill(key)
        self.page.get_by_role("button", name="Use this key").click()


@pytest.fixture(scope="session")
def console_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`colours` in two versions, the older pinned by the service below, and two that one test each has to itself."""
    directory = tmp_path_factory.mktemp("console-models")
    colours.write(directory, "colours", 1)
    colours.write(directory, "colours", 2, sharpness=1.2)
    colours.write(directory, "quiet", 1)
    colours.write(directory, "flooded", 1)
    return directory


@pytest.fixture(scope="session")
def console_service(console_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Keeps every image for review."""
    flags = ["--serve", "colours@1,quiet,flooded", "--review-enabled", "--review-accept-sample", "1"]
    with RunningService(console_models, tmp_path_factory.mktemp("console-runtime"), *flags) as service:
        yield service


@pytest.fixture(scope="package")  # ends with these tests: Playwright keeps an event loop running in this thread
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium (Debian) is missing")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_console(browser: Any, console_service: RunningService) -> Iterator[Callable[..., Console]]:
    """A tab at a view; at the end of the test nothing may have been blocked, failed or asked of another host."""
    opened = []

    def open_console(
        view: str = "try",
        *,
        url: str = console_service.url,
        size: tuple[int, int] = DESKTOP,
        scheme: str = "light",
        is_locked: bool = False,
    ) -> Console:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.set_default_timeout(TIMEOUT_MS)
        console = Console(context.new_page(), url)
        opened.append((context, console))
        _listen(console)
        console.page.goto(f"{url}/#{view}")
        if not is_locked:
            console.page.locator(f"section.view.{view}:not([hidden])").wait_for()
        return console

    yield open_console
    for context, console in opened:
        context.close()
        assert console.problems == []


def _listen(console: Console) -> None:
    def on_message(message: Any) -> None:
        # A refusal that a test provokes is also logged by the browser; anything else is ours.
        if message.type == "error" and "Failed to load resource" not in message.text:
            console.problems.append(message.text)

    def on_request(request: Any) -> None:
        if not request.url.startswith((console.url, "blob:", "data:")):
            console.problems.append(f"outside request: {request.url}")

    console.page.on("console", on_message)
    console.page.on("pageerror", lambda error: console.problems.append(str(error)))
    console.page.on("request", on_request)
