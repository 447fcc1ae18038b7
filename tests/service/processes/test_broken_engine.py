"""Engines that break or hang in the middle of serving, in real processes: the worker says so, goes and is replaced."""

import concurrent.futures
import contextlib
import time
from collections import Counter

import httpx
import pytest

from tests.hammer import PATIENCE_SECONDS, eventually
from tests.running import RunningService
from tests.sabotage import breakable_engine, is_whole
from tests.service.pictures import RED

pytestmark = pytest.mark.slow


@pytest.fixture
def breakable(models, tmp_path):
    """Starts a service whose engines break once a file, which it gives too, says so."""
    (tmp_path / "site").mkdir()
    broken, environment = breakable_engine(tmp_path / "site")
    with contextlib.ExitStack() as stack:

        def start(*flags):
            service = RunningService(models, tmp_path / "runtime", *flags, environment=environment)
            return stack.enter_context(service), broken

        yield start


def ask_until(service, is_over):
    """Ask from many connections, so that every worker gets some, until something has come about; the statuses."""
    statuses, end = Counter(), time.monotonic() + PATIENCE_SECONDS

    def ask(_):
        try:
            return httpx.post(f"{service.url}/v1/predict", content=RED, timeout=PATIENCE_SECONDS).status_code
        except httpx.TransportError as error:
            return type(error).__name__

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        while True:
            statuses.update(pool.map(ask, range(8)))
            if is_over():
                return statuses
            assert time.monotonic() < end, statuses


@pytest.mark.parametrize(
    ("how", "status", "cause", "flags"),
    [("fail", 500, "RuntimeError", ()), ("hang", 504, "no answer within", ("--deadline-seconds", "1"))],
    ids=["fail", "hang"],
)
def test_a_worker_whose_engine_breaks_says_why_and_is_replaced(breakable, how, status, cause, flags):
    service, broken = breakable(*flags)
    victim, other = service.workers()
    broken.write_text(f"{how} {victim}")
    statuses = ask_until(service, lambda: victim not in service.workers())
    assert statuses[200] > 0
    assert statuses[status] > 0
    assert set(statuses) <= {200, 503, status}  # nobody's connection broke
    eventually(lambda: is_whole(service))
    assert other in service.workers()
    assert any("the engine of tiny/1 is broken" in line and cause in line for line in service.lines)
    assert any("worker 0 ended with status 70" in line for line in service.lines)
    eventually(lambda: set(ask_until(service, lambda: True)) == {200})  # a machine that stands still costs deadlines
    text = httpx.get(f"{service.url}/metrics").text
    assert 'portcullis_broken_engines_total{model="tiny",version="1"} 1.0' in text


def test_a_service_whose_engines_keep_failing_says_so_and_comes_back_when_they_work(breakable):
    service, broken = breakable("--workers", "1")
    [worker] = service.workers()
    broken.write_text("fail everybody")
    statuses = ask_until(service, lambda: any("cannot go on: the engine of tiny/1" in line for line in service.lines))
    # who asks while no worker lives waits for one: no broken connection
    assert set(statuses) <= {500, 503, "ReadTimeout"}
    assert statuses[500] > 0
    eventually(lambda: any("times in a row; its last words: cannot serve tiny" in line for line in service.lines))
    broken.write_text("")
    eventually(lambda: is_whole(service, num_workers=1))
    assert service.workers() != [worker]
    eventually(lambda: set(ask_until(service, lambda: True)) == {200})
