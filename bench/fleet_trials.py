"""What is done to a real fleet under load, for `python -m bench.fleet` and its short form in the tests."""

import contextlib
import functools
import http.client
import itertools
import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from bench.fault_figures import Figures, tally
from tests.hammer import Hammer, eventually
from tests.real_fleet import RealFleet
from tests.running import RunningService
from tests.sabotage import ADMIN, SHARPNESS, metric

GATES = ("accept90", "accept80", "accept95")
LOOK_SECONDS = 0.01
THREADS = 3


def gate_changes(fleet: RealFleet, num_changes: int) -> Figures:
    """A gate is changed through the balancer."""
    delays: list[float] = []
    answered: list[float] = []
    statuses: Counter[int] = Counter()
    with Hammer(fleet.url, SHARPNESS, THREADS) as hammer, httpx.Client(headers=ADMIN, timeout=30) as client:
        for point in itertools.islice(itertools.cycle(GATES), num_changes):
            watches = [_Watch(service, point) for service in fleet.instances.values()]
            started = time.monotonic()
            statuses[put_gate(fleet.url, point, client).status_code] += 1
            answered.append(time.monotonic() - started)
            delays += [watch.wait() - started for watch in watches]
    return {
        "changes": num_changes,
        "answered 200, all having followed": statuses[200],
        "answered 202": statuses[202],
        "seconds until an instance answers with it, median": _median(delays),
        "99 %": _percentile(delays, 0.99),
        "at most": round(max(delays), 3),
        "seconds until the call says so of all, median": _median(answered),
        "99 % of the calls": _percentile(answered, 0.99),
        **_load(hammer),
    }


class _Watch:
    """Asks one instance for its gate, again and again, until it is as wanted."""

    def __init__(self, service: RunningService, point: str) -> None:
        self._address, self._point, self._seen = urlsplit(service.url).netloc, point, 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.closing(http.client.HTTPConnection(self._address, timeout=30)) as connection:
            eventually(lambda: time.sleep(LOOK_SECONDS) or self._gate(connection) == self._point)
        self._seen = time.monotonic()

    def _gate(self, connection: http.client.HTTPConnection) -> object:
        connection.request("GET", "/v1/models/tiny/gate")
        return json.loads(connection.getresponse().read())["operating_point"]

    def wait(self) -> float:
        self._thread.join()
        assert self._seen, f"{self._address} never had the gate {self._point}"
        return self._seen


def swaps(fleet: RealFleet, num_swaps: int) -> Figures:
    """The version is swapped through the balancer."""
    seconds, statuses = [], Counter[int]()
    with Hammer(fleet.url, SHARPNESS, THREADS) as hammer, httpx.Client(headers=ADMIN, timeout=30) as client:
        for number in range(num_swaps):
            started = time.monotonic()
            answer = client.put(f"{fleet.url}/v1/models/tiny/default", json={"version": 2 - number % 2})
            statuses[answer.status_code] += 1
            seconds.append(time.monotonic() - started)
    return {
        "swaps": num_swaps,
        "answered 200, all having swapped": statuses[200],
        "answered 202": statuses[202],
        **_load(hammer),
        "seconds until all have swapped, median": _median(seconds),
        "99 %": _percentile(seconds, 0.99),
    }


def killed_instance(fleet: RealFleet, num_kills: int) -> Figures:
    """An instance is killed with all its processes (SIGKILL); a gate changes meanwhile; it is started again."""
    behind, back = 0, []
    with Hammer(fleet.url, SHARPNESS, THREADS) as hammer:
        for number in range(num_kills):
            name, point = list(fleet.instances)[number % len(fleet.instances)], GATES[number % 2]
            hammer.wait_for(50)
            fleet.kill(name)
            hammer.wait_for(50)
            behind += put_until_made(fleet.url, point)
            started = time.monotonic()
            fleet.start(name)
            eventually(lambda n=name, p=point: gate_of(fleet.instances[n]) == p)
            back.append(time.monotonic() - started)
            eventually(lambda: put_gate(fleet.url, "accept95").status_code == 200)
    return {
        "kills": num_kills,
        **_load(hammer),
        "changes meanwhile that named it as behind (202)": behind,
        "seconds from its start until it answers, with the gate that was changed while it was away, at most": round(
            max(back), 1
        ),
    }


def cut_off_instance(fleet: RealFleet, num_cuts: int) -> Figures:
    """One instance is cut off from the database (its cable is pulled), a gate changes, the cable is put back."""
    noticed, caught_up, statuses = [], [], Counter[int]()
    with Hammer(fleet.url, SHARPNESS, THREADS) as hammer:
        for number in range(num_cuts):
            name = list(fleet.instances)[number % len(fleet.instances)]
            service, others = fleet.instances[name], [one for key, one in fleet.instances.items() if key != name]
            started = time.monotonic()
            fleet.network.pull(name, "back")
            statuses[put_gate(others[0].url, "accept80").status_code] += 1
            assert gate_of(service) == "accept95"
            eventually(lambda s=service: metric(s, "database_connected") == 0)
            noticed.append(time.monotonic() - started)
            refused = put_gate(service.url, "accept90").status_code
            assert refused == 503, refused
            assert httpx.get(f"{service.url}/readyz", timeout=30).status_code == 200
            hammer.wait_for(50)
            fleet.network.put_back(name, "back")
            started = time.monotonic()
            eventually(lambda s=service: gate_of(s) == "accept80")
            caught_up.append(time.monotonic() - started)
            eventually(lambda: put_gate(fleet.url, "accept95").status_code == 200)
    return {
        "cuts": num_cuts,
        **_load(hammer),
        "status of a change at another, which names it": _spelled(statuses),
        "status of a change at itself": 503,
        "seconds until it says that it is cut off, at most": round(max(noticed), 1),
        "seconds from the cable's return until it has the gate, at most": round(max(caught_up), 1),
    }


def restarted_database(fleet: RealFleet, num_restarts: int) -> Figures:
    """PostgreSQL is stopped and, once all have noticed, started again."""
    noticed, back, statuses = [], [], Counter[int]()
    with Hammer(fleet.url, SHARPNESS, THREADS) as hammer:
        for _ in range(num_restarts):
            started = time.monotonic()
            fleet.cluster.stop()
            eventually(lambda: _all_say(fleet, 0))
            noticed.append(time.monotonic() - started)
            statuses[put_gate(fleet.url, "accept80").status_code] += 1
            hammer.wait_for(50)
            fleet.cluster.start()
            started = time.monotonic()
            eventually(lambda: _all_say(fleet, 1))
            back.append(time.monotonic() - started)
            eventually(lambda: put_gate(fleet.url, "accept90").status_code == 200)
            assert {gate_of(service) for service in fleet.instances.values()} == {"accept90"}
            eventually(lambda: put_gate(fleet.url, "accept95").status_code == 200)
    return {
        "restarts": num_restarts,
        **_load(hammer),
        "status of a change meanwhile": _spelled(statuses),
        "seconds until all say that it is away, at most": round(max(noticed), 1),
        "seconds from its return until all have it again, at most": round(max(back), 1),
    }


def put_gate(url: str, point: str, client: httpx.Client | None = None) -> httpx.Response:
    put = client.put if client is not None else functools.partial(httpx.put, headers=ADMIN, timeout=30)
    return put(f"{url}/v1/models/tiny/gate", json={"operating_point": point})


def put_version(url: str, version: int) -> httpx.Response:
    return httpx.put(f"{url}/v1/models/tiny/default", json={"version": version}, headers=ADMIN, timeout=30)


def put_until_made(url: str, point: str) -> bool:
    """Change a gate; whether some instance was named as behind."""
    statuses = []
    eventually(lambda: statuses.append(put_gate(url, point).status_code) or statuses[-1] in (200, 202))
    return statuses[-1] == 202


def gate_of(service: RunningService) -> str | None:
    point: str | None = httpx.get(f"{service.url}/v1/models/tiny/gate", timeout=30).json()["operating_point"]
    return point


def _all_say(fleet: RealFleet, is_connected: int) -> bool:
    return all(metric(service, "database_connected") == is_connected for service in fleet.instances.values())


def _load(hammer: Hammer) -> Figures:
    return {**tally(hammer), "lost": hammer.lost, "refused": hammer.refused}


def _spelled(statuses: Counter[int]) -> dict[str, int]:
    return {str(status): count for status, count in sorted(statuses.items())}


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def _percentile(values: Sequence[float], share: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 3)
