"""The Python client, sync and async: retries by hand-driven conversations, the rest against a real service."""

import io
import socket
import subprocess
import sys
from random import Random

import httpx
import pytest

from portcullis.client import (
    NO_RETRIES,
    AsyncClient,
    Busy,
    Client,
    ClientError,
    Failed,
    Refused,
    Retries,
    TimedOut,
    Unreachable,
    Unreadable,
    calls,
)
from portcullis.client.retries import Pause, converse, split
from tests import tiny
from tests.running import ADMIN_KEY
from tests.service.conftest import PREDICT_KEY
from tests.service.pictures import BROKEN, RED, STRANGE, encode

REQUEST = httpx.Request("POST", "http://service/v1/predict")
ANSWER = {
    "model": "m", "version": 1, "label": "cat", "class_index": 0, "probability": 0.9, "top": [], "score": -3.0,
    "score_name": "mmles", "mmles": -3.0, "p_value": 0.5, "threshold": -4.0, "min_probability": 0.0,
    "operating_point": None, "verdict": "accept", "reason": None, "request_id": "r",
}  # fmt: skip


def answer(status=200, headers=None, json=ANSWER):
    return httpx.Response(status, headers=headers, json=json, request=REQUEST)


def busy(retry_after):
    error = {"error": {"code": "overloaded", "message": "full", "request_id": "abc"}}
    return answer(503, {"retry-after": retry_after} if retry_after else {}, error)


def carry_through(call, outcomes, retries):
    """Drive a conversation by hand; gives what it returns, the pauses it made and how often it sent."""
    pauses, outcomes, num_sent = [], list(outcomes), 0
    conversation = converse(call, retries)
    step = next(conversation)
    while True:
        try:
            if isinstance(step, Pause):
                pauses.append(step.seconds)
                step = conversation.send(None)
            else:
                num_sent += 1
                step = conversation.send(outcomes.pop(0))
        except StopIteration as end:
            return end.value, pauses, num_sent


PREDICT = calls.predict(b"image", {})


def test_backoff_doubles_up_to_its_limit_and_half_of_it_is_chance():
    retries = Retries(max_attempts=9, first_seconds=0.1, max_seconds=1.0, random=Random(1))
    waits = [[retries.wait_seconds(attempt, 0) for _ in range(300)] for attempt in range(8)]
    for attempt, found in enumerate(waits):
        limit = min(1.0, 0.1 * 2**attempt)
        assert 0.5 * limit <= min(found) < 0.55 * limit and 0.95 * limit < max(found) <= limit
    assert retries.wait_seconds(8, 0) is None


def test_a_busy_service_is_asked_again_never_sooner_than_it_wants():
    retries = Retries(first_seconds=0.1, random=Random(2))
    result, pauses, num_sent = carry_through(PREDICT, [busy("2"), busy(None), answer()], retries)
    assert (result.label, num_sent) == ("cat", 3)
    assert 2.05 <= pauses[0] <= 2.1 and 0.1 <= pauses[1] <= 0.2


def test_retry_after_may_be_a_date():
    headers = {"retry-after": "Wed, 21 Oct 2026 07:28:03 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    _, pauses, _ = carry_through(PREDICT, [answer(503, headers), answer()], Retries(first_seconds=0.1))
    assert 3.05 <= pauses[0] <= 3.1


def test_a_wait_beyond_the_budget_ends_the_call_at_once():
    with pytest.raises(Busy) as caught:
        carry_through(PREDICT, [busy("3600")], Retries(max_total_seconds=30))
    assert caught.value.retry_after_seconds == 3600
    assert (caught.value.code, caught.value.status, caught.value.request_id) == ("overloaded", 503, "abc")


def test_attempts_are_bounded():
    with pytest.raises(Busy):
        carry_through(PREDICT, [busy(None)] * 3, Retries(max_attempts=3))


@pytest.mark.parametrize("status", [400, 401, 404, 422, 500, 504])
def test_what_will_not_pass_is_not_repeated(status):
    kind = Refused if status < 500 else Failed
    with pytest.raises(kind) as caught:
        carry_through(PREDICT, [answer(status, json={"error": {"code": "c", "message": "m"}})], Retries())
    assert (caught.value.code, caught.value.message, caught.value.status) == ("c", "m", status)


ONCE = calls.Call("POST", "/v1/once", lambda response: "arrived", can_repeat=False)


def test_a_refused_connection_is_tried_again_by_every_call():
    for call in (PREDICT, ONCE):
        outcomes = [httpx.ConnectError("refused", request=REQUEST), answer()]
        assert carry_through(call, outcomes, Retries())[2] == 2


def test_a_broken_connection_repeats_only_what_may_arrive_twice():
    gone = httpx.RemoteProtocolError("server disconnected", request=REQUEST)
    assert carry_through(PREDICT, [gone, answer()], Retries())[2] == 2
    with pytest.raises(Unreachable) as caught:
        carry_through(ONCE, [gone], Retries())
    assert (caught.value.code, caught.value.status) == ("unreachable", None)


def test_a_timeout_is_not_repeated():
    with pytest.raises(TimedOut):
        carry_through(PREDICT, [httpx.ReadTimeout("slow", request=REQUEST)], Retries())


async def test_what_takes_minutes_is_waited_for_and_all_else_is_not():
    waits = []

    def note(request):
        waits.append(request.extensions["timeout"])
        return httpx.Response(500)

    for call in (lambda client: client.calibrate("tiny"), lambda client: client.predict(b"x")):
        with Client(timeout_seconds=7, transport=httpx.MockTransport(note)) as client, pytest.raises(Failed):
            call(client)
        async with AsyncClient(timeout_seconds=7, transport=httpx.MockTransport(note)) as client:
            with pytest.raises(Failed):
                await call(client)
    assert [wait["read"] for wait in waits] == [3600, 3600, 7, 7]
    assert {(wait["connect"], wait["write"]) for wait in waits} == {(5, 7)}


def test_parts_keep_order_and_limits():
    parts = split(range(7), [5, 5, 5, 90, 1, 1, 1], max_files=3, max_bytes=12)
    assert parts == [[0, 1], [2], [3], [4, 5, 6]]


def test_a_field_of_a_newer_service_is_passed_over_and_a_missing_one_is_an_error():
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=ANSWER | {"new": 1}))
    with Client(transport=transport) as client:
        assert client.predict(b"x").label == "cat"
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>another server</html>"))
    with Client(transport=transport) as client, pytest.raises(Unreadable):
        client.predict(b"x")


def test_an_error_without_the_services_shape_still_has_code_and_status():
    transport = httpx.MockTransport(lambda request: httpx.Response(502, text="Bad Gateway"))
    with Client(transport=transport) as client, pytest.raises(Failed) as caught:
        client.predict(b"x")
    assert (caught.value.code, caught.value.status) == ("http_502", 502)


def test_busy_entries_of_a_batch_are_sent_again_alone(monkeypatch):
    monkeypatch.setattr("portcullis.client.sync_client.time.sleep", lambda seconds: None)
    sent = []

    def respond(request):
        names = [part.split('"')[0] for part in request.content.decode("latin-1").split('filename="')[1:]]
        sent.append(names)
        shed = {"answer": None, "error": {"code": "overloaded", "message": "full", "request_id": "r"}}
        results = [
            {"file": name, **(shed if name == "b" and len(sent) < 3 else {"answer": ANSWER, "error": None})}
            for name in names
        ]
        return httpx.Response(200, json={"results": results, "request_id": "r"})

    files = [_named(name) for name in "abc"]
    with Client(transport=httpx.MockTransport(respond)) as client:
        entries = client.predict_batch(files)
    assert [entry.file for entry in entries] == ["a", "b", "c"]
    assert all(entry.answer for entry in entries)
    assert sent == [["a", "b", "c"], ["b"], ["b"]]


def _named(name):
    stream = io.BytesIO(RED)
    stream.name = name
    return stream


def test_the_key_is_sent_and_never_shown():
    seen = []

    def respond(request):
        seen.append(request.headers["authorization"])
        return httpx.Response(200, json=ANSWER)

    with Client("http://service", "very-secret", transport=httpx.MockTransport(respond)) as client:
        client.predict(b"x")
        assert seen == ["Bearer very-secret"]
        assert "very-secret" not in repr(vars(client))


def test_the_client_imports_nothing_that_serves():
    program = (
        "import sys, portcullis.client\n"
        "found = {'fastapi', 'starlette', 'uvicorn', 'onnxruntime', 'PIL', 'prometheus_client'} & set(sys.modules)\n"
        "sys.exit(f'imported {found}' if found else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# -- against a real service ------------------------------------------------------------------------------------------


@pytest.fixture
def client(running_service):
    with Client(running_service.url, retries=NO_RETRIES) as client:
        yield client


def test_path_bytes_and_open_file_give_the_same_answer(client, tmp_path):
    path = tmp_path / "red.png"
    path.write_bytes(RED)
    with path.open("rb") as stream:
        answers = [client.predict(image) for image in (path, str(path), RED, stream)]
    assert {a.model_copy(update={"request_id": ""}).model_dump_json() for a in answers} == {
        answers[0].model_copy(update={"request_id": ""}).model_dump_json()
    }
    assert (answers[0].label, answers[0].verdict) == ("red", "accept")


def test_the_gate_of_a_request_can_be_chosen(client):
    assert client.predict(STRANGE).verdict == "reject"
    assert client.predict(STRANGE, threshold=-100).verdict == "accept"
    assert client.predict(RED, operating_point="accept99", top_k=1).operating_point == "accept99"


def test_a_refusal_carries_code_message_status_and_request_id(client):
    with pytest.raises(Refused) as caught:
        client.predict(BROKEN)
    error = caught.value
    assert (error.code, error.status, len(error.request_id)) == ("bad_image", 400, 16)
    assert "expected an image" in error.message and error.request_id in str(error)
    with pytest.raises(Refused, match="no model 'nope'"):
        client.predict(RED, model="nope")


def test_a_batch_of_any_size_is_answered_in_order(running_service):
    images, labels = tiny.familiar(70, seed=4)
    files = [encode(image) for image in images]
    files[33] = BROKEN
    with Client(running_service.url) as client:
        entries = client.predict_batch(files, top_k=1)
        alone = client.predict(files[69], top_k=1)
    assert [entry.error.code if entry.error else "" for entry in entries] == [
        "bad_image" if i == 33 else "" for i in range(70)
    ]
    assert [entry.answer.class_index for i, entry in enumerate(entries) if i != 33] == [
        label for i, label in enumerate(labels.tolist()) if i != 33
    ]
    assert entries[69].answer.score == pytest.approx(alone.score, abs=1e-6)


def test_models_and_gate_are_typed(client):
    [model] = client.models()
    assert model == client.model("tiny").model_copy()
    assert model.versions[0].labels == list(tiny.LABELS)
    assert client.gate("tiny").operating_point == "accept95"
    assert client.drift("tiny").labels == tiny.LABELS
    assert client.is_ready()


def test_nobody_there_is_an_error_of_its_own(unused_port):
    with Client(f"http://127.0.0.1:{unused_port}", retries=NO_RETRIES) as client:
        assert not client.is_ready()
        with pytest.raises(Unreachable, match="cannot reach"):
            client.predict(RED)


@pytest.fixture
def unused_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]  # bound but not listening: connections are refused


async def test_the_async_client_answers_the_same(running_service, client):
    async with AsyncClient(running_service.url) as other:
        assert (await other.predict(RED)).score == client.predict(RED).score
        entries = await other.predict_batch([RED, BROKEN])
        assert [bool(entry.answer) for entry in entries] == [True, False]
        assert (await other.models())[0].name == "tiny"
        assert (await other.gate("tiny")) == client.gate("tiny")
        assert (await other.drift("tiny")).model == "tiny"
        assert await other.is_ready()
        with pytest.raises(ClientError):
            await other.predict(BROKEN)


def test_the_clients_offer_the_same_calls():
    public = [{name for name in dir(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]
    assert public[0] == public[1]


# -- with keys -------------------------------------------------------------------------------------------------------


def test_keys_open_what_they_should(reviewed_service):
    with Client(reviewed_service.url) as nobody, Client(reviewed_service.url, PREDICT_KEY) as caller:
        with pytest.raises(Refused) as caught:
            nobody.predict(RED)
        assert (caught.value.code, caught.value.status) == ("unauthorized", 401)
        assert caller.predict(RED).label == "red"
        with pytest.raises(Refused) as caught:
            caller.set_gate("tiny", "accept99")
        assert caught.value.status == 403


def test_an_admin_changes_gate_and_versions_through_the_client(reviewed_service):
    with Client(reviewed_service.url, ADMIN_KEY) as admin:
        assert admin.set_gate("tiny", "accept97.5").operating_point == "accept97.5"
        assert admin.set_gate("tiny", threshold=-4.5).threshold == -4.5
        assert dict(admin.set_gate("tiny", "accept95")) == {**dict(admin.gate("tiny")), "behind": []}
        assert [v.version for v in admin.load("tiny", 2).versions] == [1, 2]
        assert admin.start_shadow("tiny", 2, 0.5).shadow.version == 2
        assert admin.promote_shadow("tiny").default_version == 2
        assert admin.predict(RED).version == 2
        assert admin.swap("tiny", 1).default_version == 1
        assert admin.start_shadow("tiny", 2, 1.0).shadow.share == 1.0
        assert admin.drop_shadow("tiny").shadow is None
        admin.load("tiny", 2)
        admin.unload("tiny", 2)
        assert [v.version for v in admin.model("tiny").versions] == [1]
        with pytest.raises(Refused) as caught:
            admin.load("tiny", 7)
        assert caught.value.status in (404, 422)
        assert admin.rescan().refused == []
