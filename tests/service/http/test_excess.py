"""What nobody reads is bounded too: headers, trailers, and a body that goes on after the answer. On real sockets."""

import asyncio
import contextlib

import pytest
import uvicorn
from uvicorn.server import ServerState

from portcullis.http import protocol
from portcullis.http.protocol import LINGER_BYTES, MAX_HEADER_BYTES, GuardedProtocol

PIECE = 65536
CHUNKED = b"POST /read HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"


async def app(scope, receive, send):
    """Reads the body if it is asked to; answers with the number of headers."""
    if scope["path"] == "/read":
        while (await receive()).get("more_body"):
            pass
    body = b"%d" % len(scope["headers"])
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def connection(keep_alive=60):
    config = uvicorn.Config(
        app, lifespan="off", ws="none", log_config=None, access_log=False, timeout_keep_alive=keep_alive
    )
    config.load()
    server = await asyncio.get_running_loop().create_server(
        lambda: GuardedProtocol(config=config, server_state=ServerState(), app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


async def pour(writer, piece, num_bytes=4 * LINGER_BYTES):
    """Send until the server has had enough; how much it took."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < num_bytes:
            writer.write(piece)
            await asyncio.wait_for(writer.drain(), 60)
            sent += len(piece)
    return sent


async def answer(reader):
    """Status and body of the next answer."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def closed(reader):
    """Wait until the server has closed the connection, before or after what was sent last."""
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 60) == b""


@pytest.mark.parametrize(
    "piece",
    [b"x: " + b"y" * PIECE + b"\r\n", b"x: y\r\n" * (PIECE // 6), b"z" * PIECE],
    ids=["long headers", "many headers", "a header without an end"],
)
@pytest.mark.parametrize(
    "start",
    [b"GET / HTTP/1.1\r\nhost: here\r\n", CHUNKED + b"2\r\nab\r\n0\r\n"],
    ids=["headers", "trailers"],
)
async def test_headers_without_end_are_refused(start, piece):
    async with connection() as (reader, writer):
        writer.write(start)
        assert await pour(writer, piece) < LINGER_BYTES
        with contextlib.suppress(ConnectionError):
            assert (await answer(reader))[0] == 431


async def test_the_framing_of_a_chunk_has_no_room_for_more():
    async with connection() as (_, writer):
        writer.write(CHUNKED + b"2;")
        assert await pour(writer, b"x" * PIECE) < LINGER_BYTES


async def test_large_headers_and_trailers_within_the_bound_are_fine():
    async with connection() as (reader, writer):
        large = b"x: " + b"y" * (MAX_HEADER_BYTES // 2) + b"\r\n"
        writer.write(CHUNKED[:-2] + large + b"\r\n" + b"1\r\na\r\n" * 50_000 + b"0\r\n" + large + b"\r\n")
        assert await answer(reader) == (200, b"3")  # trailers are not counted among the headers


async def test_what_comes_after_the_answer_is_thrown_away_and_ends_soon():
    async with connection() as (reader, writer):
        writer.write(CHUNKED.replace(b"/read", b"/ignore"))
        assert await answer(reader) == (200, b"2")
        taken = await pour(writer, b"10000\r\n" + b"x" * PIECE + b"\r\n")
        assert LINGER_BYTES // 2 < taken < 3 * LINGER_BYTES


async def test_a_body_that_ends_soon_after_the_answer_does_not_cost_the_connection(monkeypatch):
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 3600)
    async with connection() as (reader, writer):
        writer.write(b"POST /ignore HTTP/1.1\r\nhost: here\r\ncontent-length: 300000\r\n\r\n")
        assert await answer(reader) == (200, b"2")
        writer.write(b"x" * 300_000 + b"POST /read HTTP/1.1\r\nhost: here\r\ncontent-length: 1\r\n\r\na")
        assert await answer(reader) == (200, b"2")


async def test_a_client_that_stops_in_the_middle_of_an_unread_body_is_let_go_without_another_answer(monkeypatch):
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 0.01)
    async with connection() as (reader, writer):
        writer.write(b"POST /ignore HTTP/1.1\r\nhost: here\r\ncontent-length: 300000\r\n\r\nx")
        assert await answer(reader) == (200, b"2")
        assert await asyncio.wait_for(reader.read(), 60) == b""


async def test_an_idle_connection_is_closed_though_an_empty_line_came_last():
    async with connection(keep_alive=0.5) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
        assert await answer(reader) == (200, b"1")
        writer.write(b"\r\n")
        await closed(reader)


async def test_an_idle_connection_is_closed_though_a_body_came_after_its_answer():
    async with connection(keep_alive=0.01) as (reader, writer):
        writer.write(b"POST /ignore HTTP/1.1\r\nhost: here\r\ncontent-length: 3\r\n\r\n")
        assert await answer(reader) == (200, b"2")
        writer.write(b"abc")
        await closed(reader)


async def test_a_refusal_of_the_server_itself_can_be_read_by_the_page_that_asked(monkeypatch):
    monkeypatch.setattr(GuardedProtocol, "body_timeout_seconds", 0.01)
    monkeypatch.setattr(
        GuardedProtocol, "cross_origin", staticmethod(lambda headers: [(b"for", dict(headers)[b"origin"])])
    )
    async with connection() as (reader, writer):
        writer.write(b"POST /read HTTP/1.1\r\norigin: https://shop.example\r\ncontent-length: 9\r\n\r\nx")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        assert head.startswith(b"HTTP/1.1 408 ") and b"\r\nfor: https://shop.example\r\n" in head
