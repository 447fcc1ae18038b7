"""What a connection does with requests that are turned away, on real sockets."""

import asyncio
import contextlib

import pytest
import uvicorn
from uvicorn.server import ServerState

from portcullis.http.connection import WholeResponse
from portcullis.http.protocol import SMALL_BODY_BYTES, GuardedProtocol

REFUSAL = WholeResponse(503, ((b"retry-after", b"1"),), b"too many")


async def app(scope, receive, send):
    """Answers with the length of the body."""
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    body = b"%d bytes" % length
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def request(body=b"", target="/busy", version="1.1", *headers):
    head = [f"POST {target} HTTP/{version}", "host: here", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


@contextlib.asynccontextmanager
async def connection(monkeypatch):
    """A client of a server that turns away whoever asks for /busy, while `asked` tells what it was asked about."""
    asked = []

    def turn_away(target, headers):
        asked.append(target)
        return REFUSAL if target == b"/busy" else None

    monkeypatch.setattr(GuardedProtocol, "turn_away", staticmethod(turn_away))
    config, state = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, access_log=False), ServerState()
    config.load()
    server = await asyncio.get_running_loop().create_server(
        lambda: GuardedProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer, asked
    finally:
        writer.close()
        server.close()


async def answer(reader):
    """Status and body of the next answer."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), (await reader.readexactly(length)).decode()


async def test_a_connection_that_was_turned_away_is_answered_the_next_time(monkeypatch):
    async with connection(monkeypatch) as (reader, writer, _):
        for target, expected in (("/busy", (503, "too many")), ("/free", (200, "3 bytes"))) * 2:
            writer.write(request(b"abc", target))
            assert await answer(reader) == expected


async def test_the_refusal_waits_for_the_body_and_swallows_it(monkeypatch):
    async with connection(monkeypatch) as (reader, writer, asked):
        whole = request(b"POST /free HTTP/1.1\r\n\r\n")
        writer.write(whole[:-8])
        while not asked:
            await asyncio.sleep(0.001)
        writer.write(whole[-8:] + request(b"abcd", "/free"))
        assert await answer(reader) == (503, "too many")
        assert await answer(reader) == (200, "4 bytes")


async def test_behind_a_request_that_is_being_answered_nobody_is_turned_away_and_the_order_stands(monkeypatch):
    async with connection(monkeypatch) as (reader, writer, asked):
        writer.write(request(b"a", "/free") + request(b"ab") + request(b"abc", "/free"))
        assert [await answer(reader) for _ in range(3)] == [(200, "1 bytes"), (200, "2 bytes"), (200, "3 bytes")]
        assert asked == [b"/free"]


@pytest.mark.parametrize("version, headers", [("1.0", ()), ("1.1", ("connection: close",))])
async def test_a_client_that_wants_no_more_is_let_go(monkeypatch, version, headers):
    async with connection(monkeypatch) as (reader, writer, _):
        writer.write(request(b"abc", "/busy", version, *headers))
        assert await answer(reader) == (503, "too many")
        assert await asyncio.wait_for(reader.read(), 30) == b""


@pytest.mark.parametrize(
    "sent, expected",
    [
        (request(b"x" * (SMALL_BODY_BYTES + 1)), f"{SMALL_BODY_BYTES + 1} bytes"),
        (b"POST /busy HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", "2 bytes"),
    ],
    ids=["a large body", "a body of unknown length"],
)
async def test_what_may_be_long_in_coming_takes_the_long_way(monkeypatch, sent, expected):
    async with connection(monkeypatch) as (reader, writer, asked):
        writer.write(sent)
        assert await answer(reader) == (200, expected)
        assert asked == []
