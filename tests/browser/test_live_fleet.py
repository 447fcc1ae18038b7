"""Live in a fleet: the fleet's evidence and every instance beside the others."""

import pytest

from tests import tiny
from tests.browser import colours
from tests.browser.test_live import send
from tests.running import RunningService

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_view_shows_the_fleet_and_its_alarm(open_console, console_models, cluster, tmp_path):
    flags = ("--serve", "flooded", "--workers", "1", "--instance", "rome")
    environment = {"PORTCULLIS_DATABASE": cluster.new_database()}
    with RunningService(console_models, tmp_path, *flags, environment=environment) as service:
        send(service.url, tiny.familiar(20, seed=7)[0], "flooded")
        console = open_console("live", url=service.url)
        console.page.get_by_text("Fleet of 1").wait_for()
        row = console.page.get_by_role("region", name="Instances of the fleet").locator("tbody tr")
        row.get_by_text("rome").wait_for()
        row.get_by_text("accept95").wait_for()
        assert console.page.locator(".live-grid canvas").count() == 7
        console.page.get_by_text("Evidence over 20 images of all instances").wait_for()
        send(service.url, colours.greys(60, seed=8), "flooded")
        console.page.get_by_text("Drift alarm of the fleet").wait_for()
        console.page.get_by_text("gathered by rome").wait_for()
