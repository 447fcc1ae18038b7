"""Several instances that behave as one service: two real ones, one worker each, on one real PostgreSQL."""

import contextlib
import json
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from portcullis.client import Client
from portcullis.client.export import export_review
from portcullis.schemas.drift import DriftInfo
from portcullis.store.postgresql import Postgres
from portcullis.store.state import StateStore
from tests import sabotage
from tests.hammer import Hammer, eventually
from tests.running import ADMIN_KEY
from tests.sabotage import ADMIN, SHARPNESS, damage_database, metric, put_default, store_of
from tests.service.pictures import RED, STRANGE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return sabotage.write_versions(tmp_path_factory.mktemp("versions"))


@pytest.fixture(scope="module")
def url(cluster):
    return cluster.new_database()


def serve(directory, runtime, url, name):
    """One instance; a machine that stands still for a moment must not look like a flood."""
    flags = ("--workers", "1", "--instance", name, "--overload-wait-seconds", "30", "--deadline-seconds", "60")
    return sabotage.serve(directory, runtime, *flags, "--review-enabled", environment={"PORTCULLIS_DATABASE": url})


@pytest.fixture(scope="module")
def fleet(directory, url, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(serve(directory, tmp_path_factory.mktemp(name), url, name)) for name in ("a", "b")]


def put_gate(service, point):
    body = {"operating_point": point}
    return httpx.put(f"{service.url}/v1/models/tiny/gate", json=body, headers=ADMIN, timeout=30)


def gate_of(service):
    return httpx.get(f"{service.url}/v1/models/tiny/gate", timeout=30).json()["operating_point"]


def metric_of(service, name):
    """Of the one model and version that there is drift of."""
    lines = httpx.get(f"{service.url}/metrics", timeout=30).text.splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"portcullis_{name}{{")), None)


def is_connected(service):
    return metric(service, "database_connected") == 1


def test_a_change_at_one_instance_is_in_force_at_all_when_the_call_returns(fleet, url):
    first, second = fleet
    for service, other, point in (
        (first, second, "accept80"),
        (second, first, "accept90"),
        (first, second, "accept95"),
    ):
        eventually(lambda s=service, p=point: put_gate(s, p).status_code == 200)
        assert (gate_of(service), gate_of(other)) == (point, point)
    lines = StateStore(Postgres(url)).audit()
    assert (lines[-1]["key"], lines[-1]["details"]["after"]) == ("tester", "accept95")
    told = httpx.get(f"{second.url}/v1/audit", params={"limit": 2}, headers=ADMIN, timeout=30).json()["lines"]
    assert [line["details"]["after"] for line in told] == ["accept90", "accept95"]
    assert metric(first, "state_revision") == metric(second, "state_revision") == lines[-1]["revision"]


def test_swaps_at_either_instance_answer_nothing_wrong_anywhere(fleet):
    first, second = fleet
    with Hammer(first.url, SHARPNESS, 1) as one, Hammer(second.url, SHARPNESS, 1) as other:
        for swap in range(10):
            # 503: a machine that stands still for seconds has no connection to its database
            eventually(lambda turn=swap: put_default(fleet[turn % 2], 2 - turn % 2).status_code in (200, 202))
    for hammer in (one, other):
        assert (hammer.wrong, set(hammer.statuses), hammer.lost) == ([], {200}, 0)


def test_of_two_admins_at_once_one_wins_and_the_other_is_told_what_changed(fleet):
    """Each at an instance of its own; whether they meet is chance, so they try until they have."""
    points = ("accept80", "accept90")

    def have_met():
        eventually(lambda: put_gate(fleet[0], "accept95").status_code == 200)
        with ThreadPoolExecutor(2) as pool:
            answers = dict(zip(points, pool.map(put_gate, fleet, points), strict=True))
        lost = [point for point, answer in answers.items() if answer.status_code == 409]
        if len(lost) != 1 or any(answer.status_code not in (200, 409) for answer in answers.values()):
            return None
        [won] = set(points) - set(lost)
        return won, answers[lost[0]].json()["error"]

    won, refusal = eventually(have_met)
    assert refusal["code"] == "conflict"
    assert f"gate of tiny was changed meanwhile from accept95 to {won} by tester, in revision" in refusal["message"]
    assert [gate_of(service) for service in fleet] == [won, won]
    eventually(lambda: put_gate(fleet[0], "accept95").status_code == 200)


def test_an_instance_that_does_not_follow_is_named(fleet):
    first, second = fleet
    second.process.send_signal(signal.SIGSTOP)  # its supervisor copies nothing; its worker answers on
    try:
        answer = put_gate(first, "accept80")
        assert (answer.status_code, gate_of(second)) == (202, "accept95")
        assert [(one["instance"], one["worker"]) for one in answer.json()["behind"]] == [("b", 0)]
    finally:
        second.process.send_signal(signal.SIGCONT)
    eventually(lambda: gate_of(second) == "accept80")
    eventually(lambda: put_gate(second, "accept95").status_code == 200)


def drift_of(service):
    return DriftInfo.model_validate(httpx.get(f"{service.url}/v1/models/tiny/drift", timeout=30).json())


def ask(service, image, count):
    with httpx.Client(base_url=service.url, timeout=30) as client:
        for _ in range(count):
            client.post("/v1/predict", content=image).raise_for_status()


def test_the_fleet_gathers_evidence_over_all_and_goes_on_when_the_one_that_did_so_hangs(fleet, url):
    first, second = fleet
    for service in fleet:
        ask(service, RED, 5)

    def all_is_taken_in():
        """What each instance has counted is in the evidence, and all know it."""
        found = [drift_of(service) for service in fleet]
        told = found[0].fleet
        served = {(one.version, "accept95") for one in found}
        alike = {(one.version, one.gate) for one in told.instances} == served and len(served) == 1
        is_in = all(one.num_images_taken == one.num_images_since_reset > 0 for one in told.instances)
        known = {one.fleet.num_images_since_reset for one in found}
        return told if told.num_instances == 2 and alike and is_in and len(known) == 1 else None

    told = eventually(all_is_taken_in)
    assert [one.instance for one in told.instances] == ["a", "b"]
    assert sum(one.num_images for one in told.instances) == told.num_images
    leader, other, name = (first, second, "b") if told.updated_by == "a" else (second, first, "a")
    leader.process.send_signal(signal.SIGSTOP)  # its supervisor counts and tells nothing; its connection stands
    try:
        ask(other, STRANGE, 50)

        def is_taken_over():
            now = drift_of(other).fleet
            return now.updated_by == name and now.num_images_since_reset >= told.num_images_since_reset + 50 and now

        assert eventually(is_taken_over).alarm
        assert metric_of(other, "fleet_drift_alarm") == 1
    finally:
        leader.process.send_signal(signal.SIGCONT)
    ask(leader, RED, 5)

    def all_is_taken_in_again():
        now = all_is_taken_in()
        return now if now and now.num_images_since_reset >= told.num_images_since_reset + 55 else None

    eventually(all_is_taken_in_again)
    [row] = Postgres(url).read(  # one statement, so that both are of the same moment
        "SELECT body, (SELECT SUM(taken.num_images) FROM drift_taken AS taken JOIN drift_counts USING (series)"
        " WHERE taken.watched = evidence.watched) AS num_taken FROM drift_evidence AS evidence"
    )
    assert json.loads(row["body"])["num_images"] == row["num_taken"]  # none is lost, none is counted twice
    eventually(lambda: {metric_of(service, "fleet_drift_images") for service in fleet} == {row["num_taken"]})


def test_one_review_queue_for_all(fleet, tmp_path):
    first, second = fleet
    with Client(second.url, ADMIN_KEY) as there, Client(first.url, ADMIN_KEY) as here:

        def found():  # an item is dropped rather than waited for, so one picture alone proves nothing
            httpx.post(f"{first.url}/v1/predict", content=STRANGE, timeout=30).raise_for_status()
            return [item for item in there.review_items() if there.review_image(item.id) == STRANGE]

        item, *_ = eventually(found)
        there.label_review(item.id, "sky")
        assert [(one.id, one.true_label) for one in here.review_items(state="labelled")] == [(item.id, "sky")]
        for number, client in enumerate((here, there)):
            assert export_review(client, tmp_path / str(number)) == {"sky": 1}
            [file] = (tmp_path / str(number) / "sky").iterdir()
            assert file.read_bytes() == STRANGE
        here.dismiss_review(item.id)
        assert [one.id for one in there.review_items(state="dismissed")] == [item.id]

        def is_seen_again():  # the same picture at the other instance is the same item
            ask(second, STRANGE, 1)
            now = {one.id: one.num_seen for one in here.review_items(state="dismissed")}
            return now[item.id] > item.num_seen

        eventually(is_seen_again)


def test_without_the_database_answers_go_on_changes_wait_and_all_catch_up(fleet, cluster, url):
    first, second = fleet
    with Hammer(first.url, SHARPNESS, 1) as one, Hammer(second.url, SHARPNESS, 1) as other:
        cluster.stop()
        try:
            eventually(lambda: not any(map(is_connected, fleet)))
            refused = put_gate(first, "accept80")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_away")
            for service, hammer in zip(fleet, (one, other), strict=True):
                assert httpx.get(f"{service.url}/readyz", timeout=30).status_code == 200
                counted = drift_of(service).num_images_since_reset
                hammer.wait_for(30)
                eventually(lambda s=service, c=counted: drift_of(s).num_images_since_reset >= c + 30)
                assert gate_of(service) == "accept95"
        finally:
            cluster.start()
        eventually(lambda: all(map(is_connected, fleet)))
        eventually(lambda: put_gate(second, "accept80").status_code == 200)
        assert {gate_of(service) for service in fleet} == {"accept80"}
        eventually(lambda: put_gate(first, "accept95").status_code == 200)
    for hammer in (one, other):
        assert (hammer.wrong, set(hammer.statuses), hammer.lost) == ([], {200}, 0)


def test_a_start_without_the_database_serves_what_was_known_last_and_catches_up(directory, cluster, url, tmp_path):
    with serve(directory, tmp_path / "runtime", url, "c") as service:
        eventually(lambda: put_gate(service, "accept90").status_code == 200)
    with contextlib.ExitStack() as stack:
        cluster.stop()
        try:
            service = stack.enter_context(serve(directory, tmp_path / "runtime", url, "c"))
            assert any("starting without the fleet's database" in line for line in service.lines)
            assert gate_of(service) == "accept90"
            assert metric(service, "database_connected") == 0  # which the alert is on
            assert put_gate(service, "accept95").status_code == 503
        finally:
            cluster.start()
        eventually(lambda: is_connected(service))
        eventually(lambda: put_gate(service, "accept95").status_code == 200)


def test_a_database_that_went_back_is_followed(fleet, url):
    first = fleet[0]
    store = StateStore(Postgres(url))
    eventually(lambda: put_gate(first, "accept90").status_code == 200)
    backup = store.read()
    eventually(lambda: put_gate(first, "accept80").status_code == 200)
    store.write(backup)
    eventually(lambda: {gate_of(service) for service in fleet} == {"accept90"})
    eventually(lambda: put_gate(first, "accept95").status_code == 200)


def test_a_damaged_copy_is_made_anew_and_costs_the_fleet_nothing(fleet, url):
    first, second = fleet
    eventually(lambda: put_gate(first, "accept90").status_code == 200)
    before = StateStore(Postgres(url)).read()
    damage_database(first.runtime, "overwritten")
    eventually(lambda: metric(first, "database_damaged_files") == 1)
    eventually(lambda: store_of(first.runtime).at_hand() == before)  # no revision that the fleet does not have
    assert (gate_of(first), StateStore(Postgres(url)).read()) == ("accept90", before)
    eventually(lambda: put_gate(second, "accept95").status_code == 200)
    assert gate_of(first) == "accept95"


def test_a_clean_stop_leaves_the_fleet(directory, url, fleet, tmp_path):
    database = Postgres(url)

    def known():
        return {row["id"] for row in database.read("SELECT id FROM instances")}

    with serve(directory, tmp_path / "runtime", url, "d"):
        eventually(lambda: "d" in known())
    eventually(lambda: "d" not in known())
    assert known() >= {"a", "b"}
